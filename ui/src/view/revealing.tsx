/** Text in which nothing hides. */
import { revealed } from "../text/hidden";

export function Revealing({ text }: { text: string }) {
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
