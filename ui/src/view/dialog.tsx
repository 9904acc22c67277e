/** A window over the page: the browser's own, which keeps the focus inside and closes on Escape. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

import { t } from "../text/language";
import { IconButton } from "./icon";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  class?: string;
}

export function Dialog({ title, onClose, children, class: extra }: DialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  // Before the next paint: a cleanup that comes later takes the focus from what is written by then.
  useLayoutEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element?.showModal();
    return () => {
      element?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={extra ?? ""}
      aria-labelledby="dialog-title"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <header>
        <h2 id="dialog-title">{title}</h2>
        <IconButton icon="cross" label={t("Close")} onClick={onClose} />
      </header>
      <div class="dialog-body" tabIndex={-1}>
        {children}
      </div>
    </dialog>
  );
}
