/** The same message once more, to another agent: another model, another prompt, other tools. */
import { useRef } from "preact/hooks";

import type { Run } from "../chat/run";
import { agents, type OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { Avatar } from "./avatar";
import { Icon } from "./icon";

export function RetryMenu({ openChat, run }: { openChat: OpenChat; run: Run }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const others = agents.value.filter((agent) => agent.name !== run.agent);
  if (others.length === 0 || openChat.session.activeId.value !== null) return null;
  const ask = (agent: string): void => {
    if (menu.current) menu.current.open = false;
    void openChat.sender.replaceMessage(run, run.message, agent);
  };
  return (
    <details class="menu retry" ref={menu}>
      <summary
        class="icon-button"
        aria-label={t("Try again with another agent")}
        title={t("Try again with another agent")}
      >
        <Icon name="down" />
      </summary>
      <div class="menu-items">
        {others.map((agent) => (
          <button key={agent.name} type="button" onClick={() => ask(agent.name)}>
            <Avatar agent={agent.name} /> {agent.name} <code>{agent.model}</code>
          </button>
        ))}
      </div>
    </details>
  );
}
