/** A chat of somebody else that a link shows: to be read, and continued as a copy. */
import { useEffect, useState } from "preact/hooks";

import * as server from "../api/endpoints";
import { errorText } from "../api/request";
import type { SharedChat } from "../api/schema";
import { runOf, type Run } from "../chat/run";
import { addressOf, goTo, isMenuOpen } from "../page/openchat";
import { phrase, t } from "../text/language";
import { fullDate } from "../text/time";
import { IconButton } from "./icon";
import { Markdown } from "./markdown";
import { MessageText } from "./message";
import { Thinking } from "./thinking";
import { ToolCard } from "./toolcard";
import { VisibleText } from "./visibletext";
import { Steering } from "./steering";

export function SharedPage({ id }: { id: string }) {
  const [chat, setChat] = useState<SharedChat | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    server
      .sharedChat(id)
      .then(setChat)
      .catch((error: unknown) => setProblem(errorText(error)));
  }, [id]);
  const copy = (): void => {
    server
      .copyShared(id)
      .then((made) => goTo(addressOf(made.id)))
      .catch((error: unknown) => setProblem(errorText(error)));
  };
  return (
    <main>
      <header class="heading">
        <IconButton
          icon="menu"
          label={t("Chats")}
          class="only-narrow"
          onClick={() => (isMenuOpen.value = true)}
        />
        <h1>
          <VisibleText text={chat?.title || t("Shared chat")} />
        </h1>
      </header>
      <div class="conversation" role="region" aria-label={t("Conversation")} tabIndex={0}>
        <div class="turns">
          {problem && (
            <p class="problem" role="alert">
              {problem} {t("The link may have been taken back.")}
            </p>
          )}
          {chat?.interactions.map((entry) => (
            <SharedTurnView key={entry.id} chat={id} run={runOf(entry)} />
          ))}
        </div>
      </div>
      {chat && (
        <div class="set-aside">
          <span>
            {chat.shared_by
              ? phrase("Shared by {name}, {when}. You can only read it.", {
                  name: <VisibleText text={chat.shared_by} />,
                  when: fullDate(chat.shared_at),
                })
              : t("Shared, {when}. You can only read it.", { when: fullDate(chat.shared_at) })}
          </span>
          <button type="button" class="primary" onClick={copy}>
            {t("Continue as a copy")}
          </button>
        </div>
      )}
    </main>
  );
}

function SharedTurnView({ chat, run }: { chat: string; run: Run }) {
  return (
    <article class="turn" aria-label={t("Message: {text}", { text: run.message.slice(0, 60) })}>
      <h2 class="unseen">{run.message.slice(0, 60)}</h2>
      <div class="message">
        <MessageText text={run.message} items={run.items} />
      </div>
      <div class="reply">
        {run.steps.map((step, at) => {
          if (step.kind === "call") return <ToolCard key={at} chat={chat} run={run} call={step} />;
          if (step.kind === "steered") return <Steering key={at} run={run} step={step} />;
          if (step.kind === "thought") return <Thinking key={at} text={step.text} />;
          return (
            <div key={at} class="answer">
              <Markdown text={step.text} />
            </div>
          );
        })}
        {run.error && <p class="problem">{run.error.message}</p>}
      </div>
    </article>
  );
}
