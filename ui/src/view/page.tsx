/** The whole page. */
import { stage } from "../account/account";
import { announcement } from "../page/announcer";
import { isDragging } from "../page/dropping";
import { isMenuOpen, linkedShare, openChat, type OpenChat } from "../page/openchat";
import { t } from "../text/language";
import { ApprovalDialog } from "./approvaldialog";
import { Banner } from "./banner";
import { CompareDialog } from "./comparedialog";
import { Composer } from "./composer";
import { Conversation } from "./conversation";
import { Heading } from "./heading";
import { InboxDialog } from "./inboxdialog";
import { ReplayDialog } from "./replaydialog";
import { SetAside } from "./setaside";
import { Settings } from "./settings";
import { SharedPage } from "./sharedchat";
import { ShareDialog } from "./sharedialog";
import { Shortcuts } from "./shortcuts";
import { SignInDialog, SignInPage } from "./signin";
import { Sidebar } from "./sidebar";
import { TagDialog } from "./tagdialog";
import { Timeline } from "./timeline";
import { ToastLine } from "./toast";

export function Page() {
  return stage.value === "in" ? <ChatPage /> : <SignInPage />;
}

function ChatPage() {
  const current = openChat.value;
  return (
    <>
      {hasComposer(current) && (
        <a class="skip" href="#composer" onClick={skip}>
          {t("To the message field")}
        </a>
      )}
      <Sidebar />
      {isMenuOpen.value && <div class="shade" onClick={() => (isMenuOpen.value = false)} />}
      {linkedShare.value !== null ? (
        <SharedPage key={linkedShare.value} id={linkedShare.value} />
      ) : (
        <ChatMain openChat={current} />
      )}
      <p class="unseen" role="status" aria-live="polite">
        {announcement.value}
      </p>
      <ShareDialog />
      <TagDialog />
      <InboxDialog />
      <ApprovalDialog />
      <Timeline />
      <CompareDialog />
      <ReplayDialog />
      <Shortcuts />
      <Settings />
      <SignInDialog />
      <ToastLine />
      {isDragging.value && <div class="drop-hint">{t("Drop files to attach them")}</div>}
    </>
  );
}

const hasComposer = ({ session }: OpenChat): boolean =>
  session.place.value !== "bin" && session.phase.value !== "gone" && linkedShare.value === null;

function ChatMain({ openChat: current }: { openChat: OpenChat }) {
  return (
    <main key={current.session.id}>
      <Heading openChat={current} />
      <Banner openChat={current} />
      <Conversation openChat={current} />
      {current.session.place.value === "bin" ? (
        <SetAside openChat={current} />
      ) : (
        // Nothing is said to a chat that is not there.
        current.session.phase.value !== "gone" && <Composer openChat={current} />
      )}
    </main>
  );
}

/** The address names the chat, so the link must not change it. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("composer")?.focus();
}
