/** "Like the one you approved": an earlier call of the same tool in this chat. */
import type { ApprovalRequest } from "../chat/run";
import { openChat } from "../page/openchat";
import { phrase, t } from "../text/language";
import { likest, type EarlierCall } from "../text/likeness";
import { ago, fullDate } from "../text/time";
import { VisibleText } from "./visibletext";

export function Comparison({ approval }: { approval: ApprovalRequest }) {
  const found = likest(approval.tool_input, earlierCalls(approval));
  if (!found) return null;
  const { earlier, changed } = found;
  const when = (
    <time dateTime={earlier.at} title={fullDate(earlier.at)}>
      {ago(earlier.at)}
    </time>
  );
  const others = <VisibleText text={changed.map(({ name }) => name).join(", ")} />;
  return (
    <details class="comparison">
      <summary>
        {changed.length === 0
          ? earlier.approved
            ? phrase("The same call that you approved {when}", { when })
            : phrase("The same call that you rejected {when}", { when })
          : earlier.approved
            ? phrase("Like the call that you approved {when}, other {names}", {
                when,
                names: others,
              })
            : phrase("Like the call that you rejected {when}, other {names}", {
                when,
                names: others,
              })}
      </summary>
      {changed.length > 0 && (
        <table class="numbers">
          <thead>
            <tr>
              <th scope="col">{t("Argument")}</th>
              <th scope="col">{t("Then")}</th>
              <th scope="col">{t("Now")}</th>
            </tr>
          </thead>
          <tbody>
            {changed.map(({ name, before, now }) => (
              <tr key={name}>
                <th scope="row">
                  <VisibleText text={name} />
                </th>
                <td>
                  <VisibleText text={shown(before)} />
                </td>
                <td>
                  <VisibleText text={shown(now)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </details>
  );
}

/** Decided by a person in this chat, as far as it is loaded; the oldest first. */
function earlierCalls(approval: ApprovalRequest): EarlierCall[] {
  const { session } = openChat.value;
  void session.pendingCount.value;
  return [...session.all()].flatMap((run) =>
    run.steps.flatMap((step): EarlierCall[] => {
      if (step.kind !== "call" || step.tool !== approval.tool_name) return [];
      if (step.id === approval.call_id || step.verdict?.by !== "human") return [];
      return [{ input: step.input, approved: step.verdict.approved, at: run.createdAt }];
    }),
  );
}

const shown = (value: unknown): string =>
  value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
