/** Who did what, for operators: a table of entries without contents. */
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";

import { isOperator } from "../account/operator";
import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { AuditEntry, AuditReport } from "../api/schema";
import { phrase, t } from "../text/language";
import { fullDate } from "../text/time";
import { ColumnHead } from "./columnhead";
import { Dialog } from "./dialog";
import { Icon } from "./icon";
import { VisibleText } from "./visibletext";

const HOUR = 3_600_000;
const spans = (): [string, number][] => [
  [t("the last hour"), HOUR],
  [t("the last day"), 24 * HOUR],
  [t("the last week"), 168 * HOUR],
  [t("the last 30 days"), 720 * HOUR],
];
const isOpen = signal(false);

export function AuditButton() {
  if (!isOperator()) return null;
  return (
    <>
      <button type="button" class="quiet" onClick={() => (isOpen.value = true)}>
        <Icon name="shield" /> {t("Audit")}
      </button>
      {isOpen.value && <AuditDialog />}
    </>
  );
}

function AuditDialog() {
  const [span, setSpan] = useState(24 * HOUR);
  const [user, setUser] = useState("");
  const [agent, setAgent] = useState("");
  const [report, setReport] = useState<AuditReport | null>(null);
  const [problem, setProblem] = useState("");
  const asked = useRef(0);
  const load = (): void => {
    const mine = ++asked.current;
    const since = new Date(Date.now() - span).toISOString();
    server.audit(since, user.trim(), agent.trim()).then(
      (found) => {
        if (mine !== asked.current) return;
        setReport(found);
        setProblem("");
      },
      (error: unknown) => setProblem(errorText(error)),
    );
  };
  useEffect(load, [span]);
  const ask = (event: Event): void => {
    event.preventDefault();
    load();
  };
  return (
    <Dialog title={t("Audit")} class="widest" onClose={() => (isOpen.value = false)}>
      <form class="audit-query" onSubmit={ask}>
        <label>
          {t("Of")}
          <select
            value={String(span)}
            onChange={(event) => setSpan(Number(event.currentTarget.value))}
          >
            {spans().map(([name, length]) => (
              <option key={name} value={String(length)}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label>
          {t("User")}
          <input value={user} onInput={(event) => setUser(event.currentTarget.value)} />
        </label>
        <label>
          {t("Agent")}
          <input value={agent} onInput={(event) => setAgent(event.currentTarget.value)} />
        </label>
        <button type="submit">{t("Show")}</button>
      </form>
      {problem && <p role="alert">{problem}</p>}
      {report?.entries.length === 0 && <p class="empty">{t("Nothing happened.")}</p>}
      {report !== null && report.entries.length > 0 && <Entries report={report} />}
    </Dialog>
  );
}

function Entries({ report }: { report: AuditReport }) {
  return (
    <>
      <div class="wide-table" role="region" aria-label={t("Entries")} tabIndex={0}>
        <table class="audit">
          <ColumnHead
            names={[t("When"), t("What"), t("About"), t("By"), t("Outcome"), t("Digest")]}
          />
          <tbody>
            {report.entries.map((entry) => (
              <Row key={`${entry.log} ${entry.seq} ${entry.what}`} entry={entry} />
            ))}
          </tbody>
        </table>
      </div>
      {report.is_cut && (
        <p class="muted">
          {phrase("There are more: ask for less at a time, or use {command}.", {
            command: <code>teal audit export</code>,
          })}
        </p>
      )}
    </>
  );
}

function Row({ entry }: { entry: AuditEntry }) {
  const about = [entry.tool ?? entry.subject, entry.user_id, entry.agent];
  const doer = entry.who_name ?? entry.who ?? entry.by ?? "";
  return (
    <tr title={JSON.stringify(entry.details)}>
      <td>
        <time dateTime={entry.at}>{fullDate(entry.at)}</time>
      </td>
      <td>{entry.what.replaceAll("_", " ")}</td>
      <td>
        <VisibleText text={about.filter(Boolean).join(", ")} />
      </td>
      <td>
        <VisibleText text={entry.role ? `${doer} (${entry.role})` : doer} />
      </td>
      <td>{entry.outcome}</td>
      <td>
        <code title={entry.digest ?? ""}>{entry.digest?.replace(/^\d+:/, "").slice(0, 8)}</code>
      </td>
    </tr>
  );
}
