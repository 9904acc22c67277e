/** The page's few pictures, drawn here so that nothing has to be fetched. */

const PATHS = {
  plus: "M12 5v14M5 12h14",
  send: "M5 12l14-7-5 14-3-6-6-1z",
  stop: "M7 7h10v10H7z",
  edit: "M4 20h4L19 9l-4-4L4 16v4z",
  again: "M4 12a8 8 0 0114-5l2 2M20 4v5h-5M20 12a8 8 0 01-14 5l-2-2M4 20v-5h5",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12l5 5 9-10",
  cross: "M6 6l12 12M18 6L6 18",
  up: "M4 11h3v9H4zM7 11l4-8a2 2 0 012 2v4h6l-2 11H7",
  down_thumb: "M4 4h3v9H4zM7 13l4 8a2 2 0 002-2v-4h6L17 4H7",
  tag: "M4 4h8l8 8-8 8-8-8zM8 8h.01",
  left: "M14 6l-6 6 6 6",
  first: "M17 6l-6 6 6 6M8 6v12",
  last: "M7 6l6 6-6 6M16 6v12",
  play: "M8 5l11 7-11 7z",
  right: "M10 6l6 6-6 6",
  down: "M6 10l6 6 6-6",
  menu: "M4 7h16M4 12h16M4 17h16",
  bell: "M6 17V11a6 6 0 0112 0v6l2 1H4zM10 20h4",
  tool: "M14 6a4 4 0 015 5l-8 8-4-4 8-8zM5 19l3-3",
  clock: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 8v4l3 2",
  bars: "M4 6h9M8 12h10M12 18h8",
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4",
  clip: "M8 13l6-6a2.8 2.8 0 014 4l-8 8a4.6 4.6 0 01-6.500-6.500l8-8",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  search: "M11 5a6 6 0 100 12 6 6 0 000-12zM20 20l-4.5-4.5",
  shield: "M12 3l7 3v5c0 5-3 8-7 10-4-2-7-5-7-10V6z",
  thought: "M12 4a7 6 0 00-4 11v4l4-3a7 6 0 100-12z",
  person: "M12 4a4 4 0 100 8 4 4 0 000-8zM4 20c1-4 4-6 8-6s7 2 8 6",
  pin: "M12 16v5M8 4h8l-1 6 3 4H6l3-4z",
  archive: "M4 5h16v4H4zM6 9v10h12V9M10 13h4",
  share:
    "M8 12l8-5M8 12l8 5M6 10a2 2 0 100 4 2 2 0 000-4zM18 4a2 2 0 100 4 2 2 0 000-4zM18 16a2 2 0 100 4 2 2 0 000-4z",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  spark: "M12 3l2 6 6 3-6 3-2 6-2-6-6-3 6-3z",
  eye: "M3 12s3-6 9-6 9 6 9 6-3 6-9 6-9-6-9-6zM12 10a2 2 0 100 4 2 2 0 000-4z",
  wrap: "M4 6h16M4 12h13a3 3 0 010 6h-5M14 15l-3 3 3 3M4 18h3",
  compare: "M4 5h7v14H4zM13 5h7v14h-7z",
  key: "M14 10a4 4 0 11-4-4 4 4 0 014 4zM13 13l7 7M17 17l2-2",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

interface IconButtonProps {
  icon: IconName;
  label: string;
  onClick: (event: MouseEvent) => void;
  disabled?: boolean;
  /** Of a button that stays pressed. */
  isPressed?: boolean;
  class?: string;
}

export function IconButton(props: IconButtonProps) {
  const { icon, label, onClick, disabled, isPressed, class: extra } = props;
  return (
    <button
      type="button"
      class={`icon-button ${extra ?? ""}`}
      aria-label={label}
      title={label}
      aria-pressed={isPressed}
      disabled={disabled ?? false}
      onClick={onClick}
    >
      <Icon name={icon} />
    </button>
  );
}
