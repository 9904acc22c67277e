/** A button that opens a list of things to do; a choice, Escape or a click elsewhere closes it. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { Icon, type IconName } from "./icon";

interface MenuProps {
  icon: IconName;
  label: string;
  class?: string;
  children: ComponentChildren;
}

export function Menu({ icon, label, class: name = "", children }: MenuProps) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = (): void => {
    if (menu.current) menu.current.open = false;
  };
  useEffect(() => {
    const leave = (event: Event): void => {
      if (!menu.current?.contains(event.target as Node)) close();
    };
    document.addEventListener("click", leave);
    return () => document.removeEventListener("click", leave);
  }, []);
  return (
    <details
      class={`menu ${name}`}
      ref={menu}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !menu.current?.open) return;
        close();
        menu.current.querySelector("summary")?.focus();
      }}
    >
      <summary aria-label={label} title={label} class="icon-button">
        <Icon name={icon} />
      </summary>
      <div class="menu-items" onClick={close}>
        {children}
      </div>
    </details>
  );
}
