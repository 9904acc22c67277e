import { effect } from "@preact/signals";
import { render } from "preact";

import { begin, stage } from "./account/account";
import * as chatList from "./chat/chatlist";
import * as inbox from "./inbox/inbox";
import { keepAnnouncing } from "./page/announcer";
import { listenToDrops } from "./page/dropping";
import { listenToKeys } from "./page/keyboard";
import { applyPreferences } from "./page/preferences";
import { openChat, start } from "./page/openchat";
import "./style/base.css";
import "./style/controls.css";
import "./style/layout.css";
import "./style/conversation.css";
import "./style/call.css";
import "./style/windows.css";
import "./style/print.css";
import { Page } from "./view/page";

await applyPreferences();
const place = document.getElementById("page");
if (place) render(<Page />, place);
if (await begin()) {
  startPage();
  stage.value = "in";
}

/** Nothing is asked of the server before it is known who the user is. */
function startPage(): void {
  start();
  chatList.keepRefreshing();
  inbox.keepRefreshing();
  keepAnnouncing();
  listenToKeys();
  listenToDrops();
  // The list and the inbox change with the run on the screen.
  effect(() => {
    const { session } = openChat.value;
    void session.activeId.value;
    void session.pendingCount.value;
    void session.title.value;
    void chatList.refresh();
    void inbox.refresh();
  });
}
