/** What a call would change, as the server saw it when it requested the approval. */
import { phrase, t } from "../text/language";
import { patchOf } from "../text/patch";
import { Changes } from "./difference";
import { LongText } from "./longtext";
import { VisibleText } from "./visibletext";

export function Preview({ text }: { text: string }) {
  const patch = patchOf(text);
  return (
    <div class="preview">
      <h3 class="label">
        {patch
          ? phrase("What it would change in {file}", {
              file: (
                <code>
                  <VisibleText text={patch.file} />
                </code>
              ),
            })
          : t("What it would change")}
      </h3>
      {patch ? <Changes lines={patch.lines} /> : <LongText text={text} label={t("Preview")} />}
      <p class="fine">{t("As it was when the approval was requested.")}</p>
    </div>
  );
}
