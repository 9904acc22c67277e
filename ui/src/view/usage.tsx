/** What turns have used in the last weeks, one's own or for operators everyone's: a bar a day, of all
 * of it or of one agent and model; a row a model. */
import { useEffect, useState } from "preact/hooks";

import { usage } from "../api/endpoints";
import { errorText } from "../api/request";
import type { CostView, UsageRow } from "../api/schema";
import { numberText, plural, t } from "../text/language";
import { money } from "../text/money";
import { byDay, byModel, type ModelUsage } from "../text/spent";
import { dayText } from "../text/time";
import { Budgets } from "./budgets";
import { ColumnHead } from "./columnhead";

const HEIGHT = 120;
const BAR = 12;
const GAP = 4;

const ALL = "";

export function Usage({ isOfAll = false }: { isOfAll?: boolean }) {
  const [rows, setRows] = useState<UsageRow[] | null>(null);
  const [since, setSince] = useState("");
  const [problem, setProblem] = useState("");
  useEffect(() => {
    usage(isOfAll)
      .then((report) => {
        setSince(report.since);
        setRows(report.rows);
      })
      .catch((error: unknown) => setProblem(errorText(error)));
  }, [isOfAll]);
  if (problem) return <p class="problem">{problem}</p>;
  if (rows === null) return <p class="muted">{t("Loading…")}</p>;
  if (rows.length === 0) {
    return (
      <>
        {!isOfAll && <Budgets />}
        <p class="empty">
          {t("Nothing was used since {day}. The models of scripts cost nothing.", {
            day: dayText(since),
          })}
        </p>
      </>
    );
  }
  return (
    <>
      {!isOfAll && <Budgets />}
      <ChosenPlot rows={rows} since={since} />
      <Table models={byModel(rows)} />
    </>
  );
}

/** The plot of all, of one agent, of one model, or of an agent's use of a model. */
function ChosenPlot({ rows, since }: { rows: UsageRow[]; since: string }) {
  const [agent, setAgent] = useState(ALL);
  const [model, setModel] = useState(ALL);
  const chosen = rows.filter(
    (row) => [ALL, row.agent].includes(agent) && [ALL, row.model].includes(model),
  );
  return (
    <>
      <div class="audit-query">
        <Choice
          label={t("Agent")}
          of={rows.map((row) => row.agent)}
          value={agent}
          onChoose={(name) => setAgent(name)}
        />
        <Choice
          label={t("Model")}
          of={rows.map((row) => row.model)}
          value={model}
          onChoose={(name) => setModel(name)}
        />
      </div>
      <Plot rows={chosen} since={since} />
    </>
  );
}

interface ChoiceProps {
  label: string;
  of: string[];
  value: string;
  onChoose: (name: string) => void;
}

function Choice({ label, of, value, onChoose }: ChoiceProps) {
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => onChoose(event.currentTarget.value)}>
        <option value={ALL}>{t("all")}</option>
        {[...new Set(of)].sort().map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function Plot({ rows, since }: { rows: UsageRow[]; since: string }) {
  const days = byDay(rows, since);
  const most = Math.max(...days.map((day) => day.tokens), 1);
  const width = days.length * (BAR + GAP);
  const total = days.reduce((sum, day) => sum + day.tokens, 0);
  return (
    <figure class="plot">
      <figcaption class="muted">
        {t("Tokens a day since {day}: {total} in total, at most {most} on one day", {
          day: dayText(since),
          total,
          most,
        })}
      </figcaption>
      <svg
        viewBox={`0 0 ${width} ${HEIGHT}`}
        role="img"
        aria-label={t("Tokens a day since {day}", { day: dayText(since) })}
        preserveAspectRatio="none"
      >
        {days.map((day, at) => {
          const height = (day.tokens / most) * (HEIGHT - 2);
          return (
            <g key={day.day}>
              <title>
                {`${dayText(day.day)}: ${plural(day.tokens, "{count} token", "{count} tokens")}`}
              </title>
              <rect
                class="plot-ground"
                x={at * (BAR + GAP)}
                y={0}
                width={BAR}
                height={HEIGHT}
                rx={3}
              />
              <rect
                class="plot-bar"
                x={at * (BAR + GAP)}
                y={HEIGHT - height}
                width={BAR}
                height={height}
                rx={3}
              />
            </g>
          );
        })}
      </svg>
    </figure>
  );
}

function Table({ models }: { models: ModelUsage[] }) {
  return (
    <div class="wide-table" role="region" aria-label={t("Usage by agent and model")} tabIndex={0}>
      <table class="numbers">
        <ColumnHead
          names={[t("Agent"), t("Model"), t("Calls"), t("Read"), t("Written"), t("Cost")]}
        />
        <tbody>
          {models.map((entry) => (
            <tr key={`${entry.agent} ${entry.model}`}>
              <th scope="row">{entry.agent}</th>
              <td>
                <code>{entry.model}</code>
              </td>
              <td>{numberText(entry.calls)}</td>
              <td>{numberText(entry.read)}</td>
              <td>{numberText(entry.written)}</td>
              <td>{costText(entry.cost)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const costText = (cost: CostView[]): string => cost.map(money).join(" + ") || "–";
