/** What may be spent and what is left of it: one's own, or for operators everyone's. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { BudgetReport, BudgetRow } from "../api/schema";
import { plural, t } from "../text/language";
import { money } from "../text/money";
import { fullDate } from "../text/time";
import { ColumnHead } from "./columnhead";
import { VisibleText } from "./visibletext";

export function Budgets({ isOfAll = false }: { isOfAll?: boolean }) {
  const [report, setReport] = useState<BudgetReport | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    server
      .budgets(isOfAll)
      .then(setReport)
      .catch((error: unknown) => setProblem(errorText(error)));
  }, [isOfAll]);
  if (problem) return <p class="problem">{problem}</p>;
  if (report === null) return <p class="muted">{t("Loading…")}</p>;
  if (report.rows.length === 0 && report.run.length === 0) {
    return isOfAll ? <p class="empty">{t("No budget is set.")}</p> : null;
  }
  return (
    <>
      {report.rows.length > 0 && <Table rows={report.rows} />}
      {report.run.length > 0 && (
        <p class="muted">
          {t("A single turn may spend: {amounts}.", { amounts: report.run.join(", ") })}
        </p>
      )}
    </>
  );
}

function Table({ rows }: { rows: BudgetRow[] }) {
  return (
    <div class="wide-table" role="region" aria-label={t("What is left of budgets")} tabIndex={0}>
      <table class="numbers">
        <ColumnHead
          names={[t("Budget of"), t("Whose"), t("Spent"), t("Limit"), t("Left"), t("Until")]}
        />
        <tbody>
          {rows.map((row) => (
            <tr key={[row.scope, row.user_id, row.agent, row.unit].join(" ")}>
              <th scope="row">{periodName(row.scope)}</th>
              <td>
                <VisibleText text={whose(row)} />
              </td>
              <td>{amount(row.spent, row.unit)}</td>
              <td>{amount(row.most, row.unit)}</td>
              <td>{amount(row.left, row.unit)}</td>
              <td>
                <time dateTime={row.resets_at}>{fullDate(row.resets_at)}</time>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function periodName(scope: BudgetRow["scope"]): string {
  switch (scope) {
    case "user":
      return t("a user's day");
    case "hour":
      return t("a user's hour");
    case "agent":
      return t("an agent's day");
    case "day":
      return t("the server's day");
  }
}

/** A user's budget without a user is that of all who have spent nothing. */
const whose = ({ scope, user_id, agent }: BudgetRow): string => {
  const others = scope === "user" || scope === "hour" ? t("each other user") : null;
  return [user_id ?? others, agent].filter(Boolean).join(", ");
};

const amount = (number: number, unit: string): string =>
  unit === "tokens"
    ? plural(number, "{count} token", "{count} tokens")
    : money({ amount: number, currency: unit });
