/** What a call would change, as the server saw it when it requested the approval. */
import { patchOf } from "../text/patch";
import { Changes } from "./difference";
import { LongText } from "./longtext";
import { VisibleText } from "./visibletext";

export function Preview({ text }: { text: string }) {
  const patch = patchOf(text);
  return (
    <div class="preview">
      <h3 class="label">
        What it would change
        {patch && (
          <>
            {" in "}
            <code>
              <VisibleText text={patch.file} />
            </code>
          </>
        )}
      </h3>
      {patch ? <Changes lines={patch.lines} /> : <LongText text={text} label="Preview" />}
      <p class="fine">As it was when the approval was requested.</p>
    </div>
  );
}
