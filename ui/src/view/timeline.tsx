/** The timeline of a run: what took how long, and what ran at the same time. */
import { useEffect, useState } from "preact/hooks";

import { errorText } from "../api/request";
import { areDated, bars, inRows, type Bar } from "../chat/moments";
import { eventsOf, runAfter } from "../chat/replay";
import type { Moment } from "../chat/run";
import { replayedRun, shownTimeline } from "../page/dialogs";
import { openChat } from "../page/openchat";
import { numberText, t } from "../text/language";
import { money } from "../text/money";
import { duration, fullDate } from "../text/time";
import { ColumnHead } from "./columnhead";
import { CopyButton } from "./copybutton";
import { Dialog } from "./dialog";
import { Icon } from "./icon";

const kindText = (kind: Bar["kind"]): string =>
  ({
    model: t("model"),
    tool: t("tool"),
    human: t("waiting for you"),
    queue: t("waiting in the queue"),
  })[kind];
/** The tool by its name; what is no tool by what it is. */
const laneText = ({ lane, kind }: Bar): string => lane ?? kindText(kind);
const ROW = 30;
const WIDTH = 640;
const MIN_BAR_WIDTH = 3;
const TICK_MS = 500;

export function Timeline() {
  const id = shownTimeline.value;
  if (id === null) return null;
  return (
    <Dialog title={t("Timeline")} class="wide" onClose={() => (shownTimeline.value = null)}>
      <RunTimeline key={id} id={id} />
    </Dialog>
  );
}

function RunTimeline({ id }: { id: string }) {
  const { session } = openChat.value;
  const run = session.run(id).value;
  const [logged, setLogged] = useState<Moment[] | null>(null);
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const [now, setNow] = useState(Date.now);
  const isLive = run.status === "RUNNING";
  useEffect(() => {
    if (areDated(run.moments) || isLive) return undefined;
    const leaving = new AbortController();
    eventsOf(session.id, id, leaving.signal)
      .then((events) => setLogged([...runAfter(id, events, events.length).moments]))
      .catch((error: unknown) => leaving.signal.aborted || setProblem(errorText(error)));
    return () => leaving.abort();
  }, [isLive]);
  useEffect(() => {
    if (!isLive) return undefined;
    const timer = window.setInterval(() => setNow(Date.now()), TICK_MS);
    return () => window.clearInterval(timer);
  }, [isLive]);
  const moments = areDated(run.moments) ? run.moments : (logged ?? []);
  if (problem) return <p class="problem">{problem}</p>;
  if (moments.length === 0)
    return <p class="muted">{t("The log has no times for this run yet.")}</p>;
  const rows = inRows(bars(moments, now));
  const steps = chosen === null ? rows.flat() : rows.filter(([bar]) => bar?.row === chosen).flat();
  return (
    <>
      <Chart
        rows={rows}
        chosen={chosen}
        onChoose={(row) => setChosen(row === chosen ? null : row)}
      />
      <Steps bars={steps} began={moments[0]?.at ?? 0} />
      {!isLive && (
        <div class="actions">
          <button type="button" onClick={() => replay(id)}>
            <Icon name="play" /> {t("Replay step by step")}
          </button>
        </div>
      )}
      {run.status === "COMPLETED" && <TestCommand id={id} />}
    </>
  );
}

/** What writes the run as a test that needs neither its model nor its tools. */
function TestCommand({ id }: { id: string }) {
  const command = `teal export-test ${id} --server ${location.origin} -o test_${id}.py`;
  return (
    <div class="test-command">
      <span>{t("As a test, with neither model nor tools:")}</span>
      <code>{command}</code>
      <CopyButton text={() => command} label={t("Copy command")} />
    </div>
  );
}

function replay(id: string): void {
  shownTimeline.value = null;
  replayedRun.value = id;
}

interface ChartProps {
  rows: Bar[][];
  chosen: string | null;
  onChoose: (row: string) => void;
}

function Chart({ rows, chosen, onChoose }: ChartProps) {
  const all = rows.flat();
  const first = Math.min(...all.map((bar) => bar.from));
  const last = Math.max(...all.map((bar) => bar.to), first + 1);
  const x = (at: number): number => ((at - first) / (last - first)) * WIDTH;
  return (
    <div class="chart">
      {rows.map((row) => (
        <button
          key={row[0]?.row}
          type="button"
          class="lane"
          aria-pressed={row[0]?.row === chosen}
          onClick={() => onChoose(row[0]?.row ?? "")}
        >
          <span class="lane-name">{row[0] && laneText(row[0])}</span>
          <svg viewBox={`0 0 ${WIDTH} ${ROW}`} preserveAspectRatio="none" aria-hidden="true">
            {row.map((bar) => (
              <rect
                key={bar.from}
                class={`bar ${bar.kind}`}
                x={Math.min(x(bar.from), WIDTH - MIN_BAR_WIDTH)}
                y={6}
                width={Math.max(MIN_BAR_WIDTH, x(bar.to) - x(bar.from))}
                height={ROW - 12}
                rx={3}
              />
            ))}
          </svg>
          <span class="lane-time">{duration(total(row))}</span>
        </button>
      ))}
      <p class="legend">
        {(["model", "tool", "human"] as const).map((kind) => (
          <span key={kind}>
            <i class={`swatch ${kind}`} /> {kindText(kind)}
          </span>
        ))}
        <span>{t("{time} in total", { time: duration(last - first) })}</span>
      </p>
    </div>
  );
}

/** What each of the bars took, in the order in which they began. */
function Steps({ bars: shown, began }: { bars: Bar[]; began: number }) {
  const inOrder = [...shown].sort((a, b) => a.from - b.from);
  return (
    <div class="wide-table" role="region" aria-label={t("Steps")} tabIndex={0}>
      <table class="numbers steps">
        <ColumnHead
          names={[t("Step"), t("Begins after"), t("Took"), t("Read"), t("Written"), t("Cost")]}
        />
        <tbody>
          {inOrder.map((bar) => (
            <tr key={`${bar.row} ${bar.kind} ${bar.from}`}>
              <th scope="row">
                {bar.lane && <code>{bar.lane}</code>} {kindText(bar.kind)}
              </th>
              <td title={fullDate(new Date(bar.from).toISOString())}>
                {duration(bar.from - began)}
              </td>
              <td>
                {bar.isOpen
                  ? t("{time} so far", { time: duration(bar.to - bar.from) })
                  : duration(bar.to - bar.from)}
              </td>
              <td>{bar.usage ? numberText(bar.usage.prompt_tokens) : "–"}</td>
              <td>{bar.usage ? numberText(bar.usage.completion_tokens) : "–"}</td>
              <td>{bar.cost ? money(bar.cost) : "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const total = (row: Bar[]): number => row.reduce((sum, bar) => sum + bar.to - bar.from, 0);
