/** What a call would change, as the server found it when it asked. */
import { patchOf } from "../text/patch";
import { Changes } from "./difference";
import { LongText } from "./longtext";
import { Revealing } from "./revealing";

export function Preview({ text }: { text: string }) {
  const patch = patchOf(text);
  return (
    <div class="preview">
      <h4>
        What it would change
        {patch && (
          <>
            {" in "}
            <code>
              <Revealing text={patch.file} />
            </code>
          </>
        )}
      </h4>
      {patch ? <Changes lines={patch.lines} /> : <LongText text={text} label="Preview" />}
      <p class="fine">As things were when this was asked.</p>
    </div>
  );
}
