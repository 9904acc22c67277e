/** What the user has allowed without being asked again. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { GrantView } from "../api/schema";
import * as inbox from "../inbox/inbox";
import { closeDialogs } from "../page/dialogs";
import { notice } from "../page/notice";
import { addressOf } from "../page/openchat";
import { phrase, t } from "../text/language";
import { ago } from "../text/time";

export function Grants() {
  const [all, setAll] = useState<GrantView[] | null>(null);
  const load = (): void => {
    server
      .grants()
      .then((page) => setAll(page.grants))
      .catch((error: unknown) => (notice.value = errorText(error)));
  };
  useEffect(load, [inbox.count.value]);
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
          <button
            type="button"
            onClick={() =>
              void server
                .revoke(grant.grant_id)
                .then(load)
                .catch((error: unknown) => (notice.value = errorText(error)))
            }
          >
            {t("Revoke")}
          </button>
        </li>
      ))}
    </ul>
  );
}
