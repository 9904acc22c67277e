/** How much harm a tool can do, in a word. */

const WORDS: Record<string, { text: string; title: string }> = {
  read_only: { text: "reads only", title: "It looks at something and changes nothing." },
  idempotent: { text: "repeatable", title: "It changes something; twice is the same as once." },
  at_most_once: { text: "acts once", title: "It changes something and cannot be called back." },
};
const UNKNOWN = { text: "unknown effect", title: "Nothing is known about what this tool changes." };

export function Risk({ effect }: { effect: string | undefined }) {
  const known = WORDS[effect ?? ""] ?? UNKNOWN;
  return (
    <span class="risk" data-effect={effect ?? "unknown"} title={known.title}>
      {known.text}
    </span>
  );
}
