/** Pictures of Mermaid's texts, drawn in one hidden frame that has no origin and no network. */
import mermaidAddress from "@mermaid-js/tiny/dist/mermaid.tiny.js?url";

import { randomId } from "../api/request";
import { t } from "../text/language";
import { ARTIFACT_FRAME } from "./artifacts";

interface Drawn {
  id: string;
  svg?: string;
  problem?: string;
}

const TIMEOUT_MS = 15_000;
const DRAW = `
const settings = { startOnLoad: false, securityLevel: "strict", htmlLabels: false,
  flowchart: { htmlLabels: false }, maxTextSize: 20000 };
addEventListener("message", async ({ data }) => {
  try {
    mermaid.initialize({ ...settings, theme: data.isDark ? "dark" : "neutral" });
    const { svg } = await mermaid.render("d" + data.id, data.text);
    parent.postMessage({ id: data.id, svg }, "*");
  } catch (error) {
    parent.postMessage({ id: data.id, problem: String(error?.message ?? error) }, "*");
  }
});
parent.postMessage("drawing", "*");`;

let frame: Promise<Window> | null = null;

/** The picture as SVG. Throws an `Error` that says what is wrong with the text. */
export async function drawn(text: string, isDark: boolean): Promise<string> {
  frame ??= opened().catch((error: unknown) => {
    frame = null;
    throw error;
  });
  const inside = await frame;
  const id = randomId();
  const answer = heard<Drawn>((data) => (data as Drawn).id === id, inside);
  inside.postMessage({ id, text, isDark }, "*");
  const { svg, problem } = await answer;
  if (svg === undefined) throw new Error(problem ?? t("The diagram cannot be drawn."));
  return svg;
}

async function opened(): Promise<Window> {
  const program = await (await fetch(mermaidAddress)).text();
  const element = document.createElement("iframe");
  element.src = ARTIFACT_FRAME;
  element.setAttribute("sandbox", "allow-scripts");
  element.className = "drawing-frame";
  element.tabIndex = -1;
  element.ariaHidden = "true";
  element.title = t("Diagrams");
  const ready = heard(
    (data) => data === "ready",
    () => element.contentWindow,
  );
  document.body.append(element);
  await ready;
  const inside = element.contentWindow;
  if (!inside) throw new Error(t("The diagram cannot be drawn."));
  const drawing = heard((data) => data === "drawing", inside);
  // Nothing in the program may end the element that it is in.
  const script = program.replace(/<\/script/gi, "<\\/script");
  const page = `<!doctype html><meta charset="utf-8"><body><script>${script}</script><script>${DRAW}</script>`;
  inside.postMessage(page, "*");
  await drawing;
  return inside;
}

/** The first message of the frame that fits. */
function heard<Data>(
  fits: (data: unknown) => boolean,
  from: Window | (() => Window | null),
): Promise<Data> {
  return new Promise((resolve, reject) => {
    const listen = (event: MessageEvent): void => {
      const source = typeof from === "function" ? from() : from;
      if (event.source !== source || !fits(event.data)) return;
      end();
      resolve(event.data as Data);
    };
    const late = window.setTimeout(() => {
      end();
      reject(new Error(t("The diagram takes too long.")));
    }, TIMEOUT_MS);
    const end = (): void => {
      window.clearTimeout(late);
      window.removeEventListener("message", listen);
    };
    window.addEventListener("message", listen);
  });
}
