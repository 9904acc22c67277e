/** An empty chat: the agents, examples of messages, and where the server keeps chats. */
import { randomId } from "../api/request";
import {
  agents,
  agentsProblem,
  chooseAgent,
  chosenAgent,
  health,
  showAddress,
  type OpenChat,
} from "../page/openchat";

const STORES: Record<string, string> = {
  sqlite: "in one SQLite file on the server",
  file: "as readable files on the server",
  memory: "only in the server's memory: they are lost when it stops",
};

export function Welcome({ openChat }: { openChat: OpenChat }) {
  const agent = agents.value.find((entry) => entry.name === chosenAgent.value);
  const send = async (text: string): Promise<void> => {
    if (await openChat.sender.send({ text, items: [], key: randomId() }, chosenAgent.peek()))
      showAddress();
  };
  return (
    <section class="welcome" aria-labelledby="welcome">
      <h2 id="welcome">What would you like to do?</h2>
      {agentsProblem.value && <p class="problem">{agentsProblem.value}</p>}
      <div class="agents" role="radiogroup" aria-label="Agent">
        {agents.value.map((entry) => (
          <label key={entry.name} class="agent">
            <input
              type="radio"
              name="agent"
              checked={entry.name === chosenAgent.value}
              onChange={() => chooseAgent(entry.name)}
            />
            <span>
              <strong>{entry.name}</strong>
              <span class="muted">{entry.description}</span>
              <code>{entry.model}</code>
            </span>
          </label>
        ))}
      </div>
      {agent && agent.examples.length > 0 && (
        <>
          <h3>Try one of these</h3>
          <ul class="examples">
            {agent.examples.map((example) => (
              <li key={example}>
                <button type="button" onClick={() => void send(example)}>
                  {example}
                </button>
              </li>
            ))}
          </ul>
        </>
      )}
      <Facts />
    </section>
  );
}

function Facts() {
  const store = health.value?.dependencies?.["store"];
  return (
    <details class="facts-box">
      <summary>Which model answers, and where are chats kept?</summary>
      <p>
        The model of each agent is shown above. A <code>scripted/</code> model plays a script and
        needs no key; a <code>local/</code> model runs in the server itself. To use another model,
        set a provider’s key, such as <code>OPENAI_API_KEY</code> or <code>ANTHROPIC_API_KEY</code>,
        or start Ollama; then start the server again. <code>TA_MODEL</code> chooses a model.{" "}
        <code>teal init</code> writes an agent file of your own, with its own model.
      </p>
      {store && (
        <p>
          Chats are kept {STORES[store.kind] ?? `in ${store.kind}`} (store <code>{store.kind}</code>
          {store.durability && <>, durability {store.durability}</>}). The server printed the place
          when it started; <code>TA_STORE</code> changes it. Nothing leaves this server except what
          an agent sends to its model and its tools.
        </p>
      )}
    </details>
  );
}
