/** An empty chat: who answers, what they can do, and where the server keeps chats. */
import { useState } from "preact/hooks";

import { randomId } from "../api/request";
import type { AgentView, SkillView } from "../api/schema";
import {
  agents,
  agentsProblem,
  chooseAgent,
  chosenAgent,
  health,
  showAddress,
  type OpenChat,
} from "../page/openchat";
import { phrase, t } from "../text/language";
import { Avatar } from "./avatar";
import { Icon } from "./icon";
import { Mark } from "./mark";

const storeText = (kind: string): string =>
  ({
    sqlite: t("Chats are kept in one SQLite file on the server."),
    file: t("Chats are kept as readable files on the server."),
    memory: t("Chats are kept only in the server’s memory: they are lost when it stops."),
  })[kind] ?? t("Chats are kept in {store}.", { store: kind });
const TOOLS_SHOWN = 8;

export function Welcome({ openChat }: { openChat: OpenChat }) {
  const agent = agents.value.find((entry) => entry.name === chosenAgent.value);
  const send = async (text: string): Promise<void> => {
    if (await openChat.sender.send({ text, items: [], key: randomId() }, chosenAgent.peek()))
      showAddress(openChat.session);
  };
  return (
    <section class="welcome" aria-labelledby="welcome">
      <div class="hello">
        <Mark />
        <h2 id="welcome">{t("What would you like to do?")}</h2>
        <p>{t("Agents work with tools. What could do harm waits until you have said yes.")}</p>
      </div>
      {agentsProblem.value && <p class="problem">{agentsProblem.value}</p>}
      <div class="agents" role="radiogroup" aria-label={t("Agent")}>
        {agents.value.map((entry) => (
          <label key={entry.name} class="agent">
            <input
              type="radio"
              name="agent"
              checked={entry.name === chosenAgent.value}
              onChange={() => chooseAgent(entry.name)}
            />
            <Avatar agent={entry.name} />
            <span class="agent-words">
              <strong>{entry.name}</strong>
              <span class="muted">{entry.description}</span>
              <code>{entry.model}</code>
            </span>
          </label>
        ))}
      </div>
      {agent && <Skills key={agent.name} agent={agent} onSay={(text) => void send(text)} />}
      {agent && <Abilities agent={agent} />}
      <Facts />
    </section>
  );
}

interface SkillsProps {
  agent: AgentView;
  onSay: (text: string) => void;
}

/** One skill at a time: a dozen examples at once are read by nobody. */
function Skills({ agent, onSay }: SkillsProps) {
  const [at, setAt] = useState(0);
  const skills = agent.skills.filter((skill) => skill.examples.length > 0);
  const chosen = skills[at];
  if (!chosen) return null;
  return (
    <section class="skills" aria-label={t("What {agent} can do", { agent: agent.name })}>
      {skills.length > 1 && (
        <div class="skill-names">
          {skills.map((skill, other) => (
            <button
              key={skill.name}
              type="button"
              aria-pressed={other === at}
              onClick={() => setAt(other)}
            >
              {skill.name}
            </button>
          ))}
        </div>
      )}
      <Examples skill={chosen} onSay={onSay} />
    </section>
  );
}

function Examples({ skill, onSay }: { skill: SkillView; onSay: (text: string) => void }) {
  return (
    <>
      {skill.description && <p class="muted">{skill.description}</p>}
      <ul class="examples">
        {skill.examples.map((example) => (
          <li key={example}>
            <button type="button" onClick={() => onSay(example)}>
              {example}
              <Icon name="right" />
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

function Abilities({ agent }: { agent: AgentView }) {
  const [shown, setShown] = useState(TOOLS_SHOWN);
  if (agent.tools.length === 0) return null;
  const left = agent.tools.length - shown;
  return (
    <section class="skills" aria-label={t("Tools of {agent}", { agent: agent.name })}>
      <h3>{t("Tools it may use")}</h3>
      <ul class="abilities">
        {agent.tools.slice(0, shown).map((tool) => (
          <li key={tool.name} title={tool.description} data-asks={tool.effect !== "read_only"}>
            <Icon name={tool.effect === "read_only" ? "eye" : "shield"} />
            {tool.title}
          </li>
        ))}
        {left > 0 && (
          <li>
            <button type="button" class="quiet" onClick={() => setShown(agent.tools.length)}>
              {t("{count} more", { count: left })}
            </button>
          </li>
        )}
      </ul>
    </section>
  );
}

function Facts() {
  const store = health.value?.dependencies?.["store"];
  return (
    <details class="facts-box">
      <summary>{t("Which model answers, and where are chats kept?")}</summary>
      <p>
        {phrase(
          "The model of each agent is shown above. A {scripted} model plays a script and needs no key; a {local} model runs in the server itself. To use another model, set a provider’s key, such as {openai} or {anthropic}, or start Ollama; then start the server again. {setting} chooses a model. {command} writes an agent file of your own, with its own model.",
          {
            scripted: <code>scripted/</code>,
            local: <code>local/</code>,
            openai: <code>OPENAI_API_KEY</code>,
            anthropic: <code>ANTHROPIC_API_KEY</code>,
            setting: <code>TA_MODEL</code>,
            command: <code>teal init</code>,
          },
        )}
      </p>
      {store && (
        <p>
          {storeText(store.kind)}{" "}
          {store.durability && t("Durability: {kind}.", { kind: store.durability })}{" "}
          {phrase(
            "The server printed the place when it started; {setting} changes it. Nothing leaves this server except what an agent sends to its model and its tools.",
            { setting: <code>TA_STORE</code> },
          )}
        </p>
      )}
    </details>
  );
}
