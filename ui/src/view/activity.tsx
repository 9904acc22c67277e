/** Who is at work and what that costs, for operators: no word of what is said. */
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

import { isOperator } from "../account/operator";
import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { SessionReport, SessionView } from "../api/schema";
import { phrase, t } from "../text/language";
import { fullDate } from "../text/time";
import { Budgets } from "./budgets";
import { ColumnHead } from "./columnhead";
import { Dialog } from "./dialog";
import { Icon } from "./icon";
import { Usage } from "./usage";
import { VisibleText } from "./visibletext";

const HOUR = 3_600_000;
const PARTS = ["sessions", "budgets", "usage"] as const;
type Part = (typeof PARTS)[number];

const shown = signal<Part | null>(null);

export function ActivityButton() {
  if (!isOperator()) return null;
  return (
    <>
      <button type="button" class="quiet" onClick={() => (shown.value = "sessions")}>
        <Icon name="eye" /> {t("Activity")}
      </button>
      {shown.value !== null && <ActivityDialog part={shown.value} />}
    </>
  );
}

function ActivityDialog({ part }: { part: Part }) {
  return (
    <Dialog title={t("Activity")} class="widest" onClose={() => (shown.value = null)}>
      <div class="choices" role="group" aria-label={t("Part of the activity")}>
        {PARTS.map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={name === part}
            onClick={() => (shown.value = name)}
          >
            {partName(name)}
          </button>
        ))}
      </div>
      <section aria-label={partName(part)} class="settings-part">
        {part === "sessions" && <Sessions />}
        {part === "budgets" && <Budgets isOfAll />}
        {part === "usage" && <Usage isOfAll />}
      </section>
    </Dialog>
  );
}

function Sessions() {
  const [report, setReport] = useState<SessionReport | null>(null);
  const [problem, setProblem] = useState("");
  const load = (): void => {
    server.sessions(new Date(Date.now() - HOUR).toISOString()).then(
      (found) => {
        setReport(found);
        setProblem("");
      },
      (error: unknown) => setProblem(errorText(error)),
    );
  };
  useEffect(load, []);
  return (
    <>
      <button type="button" class="quiet" onClick={load}>
        <Icon name="again" /> {t("Look again")}
      </button>
      {problem && <p role="alert">{problem}</p>}
      {report?.users.length === 0 && (
        <p class="empty">{t("Nobody was at work in the last hour.")}</p>
      )}
      {report !== null && report.users.length > 0 && <Users report={report} />}
      {report !== null && report.sessions.length > 0 && <Threads report={report} />}
    </>
  );
}

function Users({ report }: { report: SessionReport }) {
  return (
    <div class="wide-table" role="region" aria-label={t("Users")} tabIndex={0}>
      <table class="audit">
        <caption class="unseen">{t("Users")}</caption>
        <ColumnHead
          names={[t("User"), t("Running"), t("Waiting"), t("Ended"), t("Open streams"), t("Last")]}
        />
        <tbody>
          {report.users.map((user) => (
            <tr key={user.user_id}>
              <td>
                <VisibleText text={user.user_id} />
              </td>
              <td>{user.running}</td>
              <td>{user.waiting}</td>
              <td>{user.ended}</td>
              <td>{user.streams}</td>
              <td>
                {user.last_at && <time dateTime={user.last_at}>{fullDate(user.last_at)}</time>}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Threads({ report }: { report: SessionReport }) {
  return (
    <>
      <div class="wide-table" role="region" aria-label={t("Conversations")} tabIndex={0}>
        <table class="audit">
          <caption class="unseen">{t("Conversations")}</caption>
          <ColumnHead
            names={[t("Status"), t("User"), t("Agent"), t("API"), t("Changed"), t("Thread")]}
          />
          <tbody>
            {report.sessions.map((one) => (
              <tr key={one.thread_id}>
                <td>{statusText(one)}</td>
                <td>
                  <VisibleText text={one.user_id} />
                </td>
                <td>
                  <VisibleText text={one.agent} />
                </td>
                <td>{one.surface}</td>
                <td>
                  <time dateTime={one.updated_at}>{fullDate(one.updated_at)}</time>
                </td>
                <td>
                  <code>{one.thread_id}</code>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {report.is_cut && (
        <p class="muted">
          {phrase("There are more: use {command}.", { command: <code>teal sessions</code> })}
        </p>
      )}
    </>
  );
}

/** A run that no instance works at was left behind by one that is gone. */
function statusText({ status, is_driven, queued }: SessionView): string {
  const shown = status === "running" && !is_driven ? t("running, left behind") : stateName(status);
  return queued ? `${shown}, ${t("{count} queued", { count: queued })}` : shown;
}

const stateName = (status: string): string =>
  ({
    running: t("running"),
    waiting: t("waiting"),
    completed: t("done"),
    failed: t("failed"),
    cancelled: t("stopped"),
  })[status] ?? status;

function partName(part: Part): string {
  switch (part) {
    case "sessions":
      return t("Sessions");
    case "budgets":
      return t("Budgets");
    case "usage":
      return t("Usage");
  }
}
