/** The whole page. */
import { stage } from "../account/account";
import { announcement } from "../page/announcer";
import { isMenuOpen, openChat } from "../page/openchat";
import { Banner } from "./banner";
import { Composer } from "./composer";
import { Conversation } from "./conversation";
import { Heading } from "./heading";
import { InboxDialog } from "./inboxdialog";
import { Shortcuts } from "./shortcuts";
import { SignInDialog, SignInPage } from "./signin";
import { Sidebar } from "./sidebar";
import { Timeline } from "./timeline";

export function Page() {
  return stage.value === "in" ? <ChatPage /> : <SignInPage />;
}

function ChatPage() {
  const current = openChat.value;
  return (
    <>
      <a class="skip" href="#composer" onClick={skip}>
        To the message field
      </a>
      <Sidebar />
      {isMenuOpen.value && <div class="shade" onClick={() => (isMenuOpen.value = false)} />}
      <main key={current.session.id}>
        <Heading openChat={current} />
        <Banner openChat={current} />
        <Conversation openChat={current} />
        <Composer openChat={current} />
      </main>
      <p class="unseen" role="status" aria-live="polite">
        {announcement.value}
      </p>
      <InboxDialog />
      <Timeline />
      <Shortcuts />
      <SignInDialog />
    </>
  );
}

/** The address names the chat, so the link must not change it. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("composer")?.focus();
}
