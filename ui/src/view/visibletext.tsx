/** Text in which hidden characters are made visible. */
import { revealed } from "../text/hidden";

export function VisibleText({ text }: { text: string }) {
  return (
    <>
      {revealed(text).map((piece, at) =>
        piece.hidden === null ? (
          piece.text
        ) : (
          <mark key={at} class="hidden-character">
            {piece.hidden}
          </mark>
        ),
      )}
    </>
  );
}
