/** The messages of a chat. New text scrolls into view while the reader is at the end. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { complain } from "../page/notice";
import { newChat, sought, type OpenChat } from "../page/openchat";
import { placeOf } from "../page/seeking";
import { t } from "../text/language";
import { Icon } from "./icon";
import { MessageText } from "./message";
import { Turn } from "./turn";
import { Welcome } from "./welcome";

const SHOWN = 20;
/** How many more are shown at a time: hundreds at once would block the page. */
const MORE = 40;
/** A reader who is this many pixels from the end counts as being there. */
const NEAR = 80;
/** So many messages before the one that was looked for are shown too. */
const MARGIN = 3;

export function Conversation({ openChat }: { openChat: OpenChat }) {
  const { session, sender } = openChat;
  const [shown, setShown] = useState(SHOWN);
  const view = useRef<HTMLDivElement>(null);
  const { isAway, toEnd, keepPlace } = useEndOf(view);
  const all = session.visible.value;
  const outgoing = sender.outgoing.value;
  useEffect(() => toEnd(), [outgoing !== null]);
  const showOlder = async (): Promise<void> => {
    try {
      if (all.length < shown + MORE && session.older.peek()) await session.loadOlder();
    } catch (error) {
      complain(error);
      return;
    }
    keepPlace();
    setShown(shown + MORE);
  };
  useEffect(() => void seek(), [sought.value, session.phase.value]);
  const seek = async (): Promise<void> => {
    const id = sought.peek();
    if (id === null || session.phase.peek() !== "open") return;
    sought.value = null;
    const place = await placeOf(session, id).catch((error: unknown) => {
      complain(error);
      return -1;
    });
    if (place < 0) return;
    setShown((before) => Math.max(before, session.visible.peek().length - place + MARGIN));
    requestAnimationFrame(() => showTurn(view.current, id));
  };
  const hasOlder = all.length > shown || session.older.value !== null;
  const older = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!older.current) return undefined;
    // Those who scroll up find them there; the button is for the keyboard and for another attempt.
    const watch = new IntersectionObserver(
      (seen) => void (seen.some((entry) => entry.isIntersecting) && showOlder()),
      { root: view.current },
    );
    watch.observe(older.current);
    return () => watch.disconnect();
  }, [hasOlder, shown, all.length]);
  return (
    <div class="conversation" ref={view} tabIndex={0} role="region" aria-label={t("Conversation")}>
      <div class="turns">
        {session.phase.value === "loading" && <p class="muted">{t("Loading…")}</p>}
        {session.phase.value === "gone" && <Gone />}
        {session.phase.value === "failed" && (
          <p class="problem" role="alert">
            {session.problem.value}
          </p>
        )}
        {session.phase.value === "new" && !outgoing && <Welcome openChat={openChat} />}
        {session.phase.value === "open" && all.length === 0 && !outgoing && (
          <Welcome openChat={openChat} />
        )}
        {hasOlder && (
          <button ref={older} type="button" class="quiet older" onClick={() => void showOlder()}>
            {t("Show earlier messages")}
          </button>
        )}
        {all.slice(-shown).map((id) => (
          <Turn key={id} openChat={openChat} id={id} />
        ))}
        {outgoing && (
          <div class="turn outgoing" aria-busy="true">
            <div class="message">
              <MessageText text={outgoing.text} items={outgoing.items} />
            </div>
            <p class="muted">
              {outgoing.state === "retrying"
                ? t("Sending again; it will arrive only once.")
                : t("Sending…")}
              {outgoing.state === "retrying" && (
                <button type="button" class="quiet" onClick={() => sender.abandon()}>
                  {t("Stop trying")}
                </button>
              )}
            </p>
          </div>
        )}
      </div>
      {isAway && (
        <button type="button" class="to-end" onClick={toEnd}>
          <Icon name="down" /> {t("Newest")}
        </button>
      )}
    </div>
  );
}

function Gone() {
  return (
    <div class="empty gone">
      <p>{t("This chat does not exist. It may have been deleted, or be another person’s.")}</p>
      <button type="button" onClick={newChat}>
        <Icon name="plus" /> {t("New chat")}
      </button>
    </div>
  );
}

function showTurn(view: HTMLElement | null, id: string): void {
  const turn = view?.querySelector<HTMLElement>(`[data-run="${CSS.escape(id)}"]`);
  if (!turn) return;
  turn.dataset["found"] = "true";
  turn.scrollIntoView({ block: "start" });
  turn.focus({ preventScroll: true });
}

/** Scrolls to the end while the text grows, unless the reader has scrolled away. */
function useEndOf(view: { current: HTMLDivElement | null }) {
  const [isAway, setAway] = useState(false);
  const away = useRef(false);
  const bottom = useRef<number | null>(null);
  const end = useRef<number | null>(null);
  const scrollToEnd = (element: HTMLElement): void => {
    element.scrollTop = element.scrollHeight;
    end.current = element.scrollTop;
  };
  const toEnd = (): void => {
    away.current = false;
    setAway(false);
    if (view.current) scrollToEnd(view.current);
  };
  const keepPlace = (): void => {
    const element = view.current;
    bottom.current = element ? element.scrollHeight - element.scrollTop : null;
  };
  useLayoutEffect(() => {
    const element = view.current;
    if (!element || bottom.current === null) return;
    element.scrollTop = element.scrollHeight - bottom.current;
    bottom.current = null;
  });
  useEffect(() => {
    const element = view.current;
    const content = element?.firstElementChild;
    if (!element || !content) return undefined;
    const measure = (): void => {
      // Told of late: what has grown since then is no sign that the reader has scrolled away.
      if (!away.current && element.scrollTop === end.current) return;
      const left = element.scrollHeight - element.scrollTop - element.clientHeight;
      away.current = left > NEAR;
      setAway(away.current);
    };
    const growth = new ResizeObserver(() => {
      const hasTurns = content.querySelector(".turn") !== null;
      if (!away.current && hasTurns) scrollToEnd(element);
    });
    growth.observe(content);
    // It shrinks where the field for messages grows, a phone is turned or its keyboard opens.
    growth.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      growth.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  return { isAway, toEnd, keepPlace };
}
