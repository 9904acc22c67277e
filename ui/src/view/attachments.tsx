/** What a tool returned beside its text: pictures to look at, files to save, links. */
import { useEffect, useState } from "preact/hooks";

import { attachment } from "../api/endpoints";
import { errorText } from "../api/request";
import type { AttachmentView } from "../api/schema";
import { saveBlob } from "../page/download";
import { t } from "../text/language";
import { sizeText } from "./sentfile";

/** What browsers show without running anything in it. */
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

interface AttachmentsProps {
  chat: string;
  run: string;
  call: string;
  attachments: AttachmentView[];
}

export function Attachments({ chat, run, call, attachments }: AttachmentsProps) {
  const read = async (number: number): Promise<Blob> => {
    const response = await attachment(chat, run, call, number);
    return response.blob();
  };
  return (
    <ul class="call-attachments" aria-label={t("Returned by the tool")}>
      {attachments.map((one, number) => (
        <li key={number}>
          {one.link ? (
            <Link address={one.link} name={one.name} />
          ) : PICTURES.includes(one.media_type) ? (
            <Picture read={() => read(number)} name={one.name ?? t("Picture")} />
          ) : (
            <File read={() => read(number)} about={one} />
          )}
        </li>
      ))}
    </ul>
  );
}

function Picture({ read, name }: { read: () => Promise<Blob>; name: string }) {
  const [address, setAddress] = useState<string | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let made: string | null = null;
    let isGone = false;
    read().then(
      (blob) => {
        if (isGone) return;
        made = URL.createObjectURL(blob);
        setAddress(made);
      },
      (error: unknown) => setProblem(errorText(error)),
    );
    return () => {
      isGone = true;
      if (made) URL.revokeObjectURL(made);
    };
    // It is read once: what an attachment holds never changes.
  }, []);
  if (problem) return <span role="alert">{`${name}: ${problem}`}</span>;
  return address ? <img src={address} alt={name} /> : <span class="file">{name}</span>;
}

function File({ read, about }: { read: () => Promise<Blob>; about: AttachmentView }) {
  const [problem, setProblem] = useState("");
  const name = about.name ?? t("attachment");
  const save = (): void => {
    read().then(
      (blob) => saveBlob(name, blob),
      (error: unknown) => setProblem(errorText(error)),
    );
  };
  return (
    <>
      <button type="button" class="quiet" onClick={save}>
        {t("Save {name} ({type}, {size})", {
          name,
          type: about.media_type,
          size: sizeText(about.size),
        })}
      </button>
      {problem && <span role="alert">{problem}</span>}
    </>
  );
}

/** Only addresses of web pages lead anywhere: a tool's server may write others. */
function Link({ address, name }: { address: string; name: string | null }) {
  const text = name ? `${name}: ${address}` : address;
  if (!/^https?:\/\//i.test(address)) return <span class="file">{text}</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer">
      {text}
    </a>
  );
}
