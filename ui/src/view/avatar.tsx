/** An agent's picture: its own icon and colour, or its first letter in a colour made of its name. */
import { agents } from "../page/openchat";

export function Avatar({ agent }: { agent: string }) {
  const known = agents.value.find((entry) => entry.name === agent);
  const letter = [...agent.replace(/[^\p{L}\p{N}]/gu, "")][0] ?? "•";
  return (
    <span
      class="avatar"
      aria-hidden="true"
      style={{ "--hue": String(known?.colour ? hueOf(known.colour) : hueOfName(agent)) }}
    >
      {known?.icon ?? letter.toUpperCase()}
    </span>
  );
}

/** Of the colour only the hue is used, so that every letter on it can be read. */
function hueOf(colour: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  if (r === undefined || g === undefined || b === undefined) return 172;
  const high = Math.max(r, g, b);
  const span = high - Math.min(r, g, b);
  if (span === 0) return 172;
  const sixth =
    high === r ? ((g - b) / span + 6) % 6 : high === g ? (b - r) / span + 2 : (r - g) / span + 4;
  return Math.round(sixth * 60);
}

function hueOfName(name: string): number {
  let sum = 7;
  for (const char of name) sum = (sum * 31 + (char.codePointAt(0) ?? 0)) % 3600;
  // The golden angle keeps neighbours apart.
  return Math.round((sum * 137.5) % 360);
}
