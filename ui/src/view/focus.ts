/** Where the focus is, for those who do not use a mouse. */
import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** An element gets the focus when it appears, and does not take it back when it is drawn again. */
export function useFirstFocus<Kind extends HTMLElement>(): RefObject<Kind | null> {
  const element = useRef<Kind>(null);
  useLayoutEffect(() => element.current?.focus(), []);
  return element;
}

/** When a decision takes the element away, the focus that was in it goes to the next call that waits,
 * else to the window or the turn around it.
 *
 * `hold` is called before the decision is sent: a button that is disabled has lost the focus.
 */
export function useSuccessor(element: RefObject<HTMLElement | null>): { hold: () => void } {
  const heir = useRef<HTMLElement | null>(null);
  useLayoutEffect(
    () => () => {
      if (heir.current) passFocus(heir.current);
    },
    [],
  );
  return {
    hold: () => {
      const { current } = element;
      if (!current?.contains(document.activeElement)) return;
      heir.current = current.closest<HTMLElement>(".dialog-body, .turn");
    },
  };
}

function passFocus(heir: HTMLElement): void {
  requestAnimationFrame(() => {
    // It may have gone elsewhere while the decision was on its way.
    if (document.activeElement !== document.body) return;
    const next = heir.querySelector<HTMLElement>(".approval");
    (next ?? heir).focus({ preventScroll: next === null });
  });
}
