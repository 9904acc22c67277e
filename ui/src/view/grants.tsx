/** What the user has allowed without being asked again. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText, isReachable } from "../api/request";
import type { GrantView } from "../api/schema";
import * as inbox from "../inbox/inbox";
import { closeDialogs } from "../page/dialogs";
import { addressOf } from "../page/openchat";
import { phrase, t } from "../text/language";
import { ago } from "../text/time";

export function Grants() {
  const [all, setAll] = useState<GrantView[] | null>(null);
  const [problem, setProblem] = useState("");
  // Read again when the server is back.
  useEffect(() => void load(), [inbox.count.value, isReachable.value]);
  const load = async (change?: Promise<unknown>): Promise<void> => {
    try {
      await change;
      setAll((await server.grants()).grants);
      setProblem("");
    } catch (error) {
      setProblem(errorText(error));
    }
  };
  if (problem) {
    return (
      <p class="problem" role="alert">
        {problem}
      </p>
    );
  }
  if (all === null) return null;
  if (all.length === 0) {
    return (
      <p class="empty">
        {t(
          "Nothing is allowed without asking. “Allow in this chat” beside a call puts its tool here.",
        )}
      </p>
    );
  }
  return (
    <ul class="grants">
      {all.map((grant) => (
        <li key={grant.grant_id}>
          <span>
            {phrase("{tool} in {chat}, {when}", {
              tool: <code>{grant.tool}</code>,
              chat: (
                <a href={addressOf(grant.chat_id)} onClick={closeDialogs}>
                  {grant.chat_title || t("this chat")}
                </a>
              ),
              when: <span class="muted">{ago(grant.granted_at)}</span>,
            })}
          </span>
          <button type="button" onClick={() => void load(server.revoke(grant.grant_id))}>
            {t("Revoke")}
          </button>
        </li>
      ))}
    </ul>
  );
}
