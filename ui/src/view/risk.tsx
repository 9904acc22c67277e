/** How much harm a tool can do, in a word. */
import { t } from "../text/language";

const KNOWN: Record<string, () => [string, string]> = {
  read_only: () => [t("reads only"), t("It looks at something and changes nothing.")],
  idempotent: () => [t("repeatable"), t("It changes something; twice is the same as once.")],
  at_most_once: () => [t("acts once"), t("It changes something and cannot be called back.")],
};
const unknown = (): [string, string] => [
  t("unknown effect"),
  t("Nothing is known about what this tool changes."),
];

export function Risk({ effect }: { effect: string | undefined }) {
  const [text, title] = (KNOWN[effect ?? ""] ?? unknown)();
  return (
    <span class="risk" data-effect={effect ?? "unknown"} title={title}>
      {text}
    </span>
  );
}
