/** The timeline of a run: what took how long, and what ran at the same time. */
import { useEffect, useState } from "preact/hooks";

import { archive } from "../api/endpoints";
import { errorText } from "../api/request";
import { areDated, bars, inRows, momentsOf, type Bar } from "../chat/moments";
import type { Moment } from "../chat/run";
import { shownTimeline } from "../page/dialogs";
import { openChat } from "../page/openchat";
import { t } from "../text/language";
import { duration, fullDate } from "../text/time";
import { Dialog } from "./dialog";

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
    if (areDated(run.moments) || isLive) return;
    archive(session.id)
      .then(({ events }) => setLogged(momentsOf(events, id)))
      .catch((error: unknown) => setProblem(errorText(error)));
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
  const details = rows.find(([bar]) => bar?.row === chosen);
  return (
    <>
      <Chart rows={rows} chosen={chosen} onChoose={setChosen} />
      {details ? (
        <Details bars={details} />
      ) : (
        <p class="muted">{t("Choose a row for its details.")}</p>
      )}
    </>
  );
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

function Details({ bars: shown }: { bars: Bar[] }) {
  return (
    <ol class="details">
      {shown.map((bar) => (
        <li key={bar.from}>
          <strong>{laneText(bar)}</strong>{" "}
          {t("({kind}), {time}, from {start}", {
            kind: kindText(bar.kind),
            time: bar.isOpen
              ? t("{time} so far", { time: duration(bar.to - bar.from) })
              : duration(bar.to - bar.from),
            start: fullDate(new Date(bar.from).toISOString()),
          })}
        </li>
      ))}
    </ol>
  );
}

const total = (row: Bar[]): number => row.reduce((sum, bar) => sum + bar.to - bar.from, 0);
