/** The first minute: what to say, who answers, how to go on from here. */
import { randomId } from "../api/request";
import {
  agents,
  agentsProblem,
  chooseAgent,
  chosenAgent,
  health,
  settle,
  type Room,
} from "../page/room";

const STORES: Record<string, string> = {
  sqlite: "in one SQLite file on the server",
  file: "as readable files on the server",
  memory: "in the server's memory only: they end with it",
};

export function Welcome({ room }: { room: Room }) {
  const agent = agents.value.find((entry) => entry.name === chosenAgent.value);
  const say = async (text: string): Promise<void> => {
    if (await room.voice.say({ text, items: [], key: randomId() }, chosenAgent.peek())) settle();
  };
  return (
    <section class="welcome" aria-labelledby="welcome">
      <h2 id="welcome">What shall we do?</h2>
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
                <button type="button" onClick={() => void say(example)}>
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
  const store = health.value?.dependencies["store"];
  return (
    <details class="facts-box">
      <summary>Which model answers, and where is all this kept?</summary>
      <p>
        Each agent names its model above. A <code>scripted/</code> model plays a script and needs no
        key; <code>local/</code> runs in the server itself. To connect a real one, set a provider’s
        key, such as <code>OPENAI_API_KEY</code> or <code>ANTHROPIC_API_KEY</code>, or start Ollama,
        and start the server again; <code>TA_MODEL</code> names one, and an agent file of your own
        names another: <code>teal init</code> writes one.
      </p>
      {store && (
        <p>
          Chats are kept {STORES[store.kind] ?? `in ${store.kind}`} (store <code>{store.kind}</code>
          {store.durability && <>, durability {store.durability}</>}). Where that is stands in the
          line the server printed when it started; <code>TA_STORE</code> moves it. Nothing leaves
          this server but what an agent sends to its model and its tools.
        </p>
      )}
    </details>
  );
}
