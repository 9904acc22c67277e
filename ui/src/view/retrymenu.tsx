/** The same message once more, to another agent: another model, another prompt, other tools. */
import type { Run } from "../chat/run";
import { agents, type OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { Avatar } from "./avatar";
import { Menu } from "./menu";

export function RetryMenu({ openChat, run }: { openChat: OpenChat; run: Run }) {
  const others = agents.value.filter((agent) => agent.name !== run.agent);
  if (others.length === 0 || openChat.session.activeId.value !== null) return null;
  return (
    <Menu icon="down" label={t("Try again with another agent")} class="retry">
      {others.map((agent) => (
        <button
          key={agent.name}
          type="button"
          onClick={() => void openChat.sender.replaceMessage(run, run.message, agent.name)}
        >
          <Avatar agent={agent.name} /> {agent.name} <code>{agent.model}</code>
        </button>
      ))}
    </Menu>
  );
}
