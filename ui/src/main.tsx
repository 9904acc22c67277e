import { effect } from "@preact/signals";
import { render } from "preact";

import { keepFresh, refresh } from "./chat/shelf";
import { keepLooking, look } from "./inbox/inbox";
import { keepAnnouncing } from "./page/announcer";
import { listenToKeys } from "./page/keyboard";
import { room, start } from "./page/room";
import "./style/base.css";
import "./style/controls.css";
import "./style/layout.css";
import "./style/conversation.css";
import "./style/call.css";
import "./style/windows.css";
import { Page } from "./view/page";

start();
keepFresh();
keepLooking();
keepAnnouncing();
listenToKeys();

// The list and the inbox change with the run on the screen.
effect(() => {
  const { session } = room.value;
  void session.activeId.value;
  void session.pendingCount.value;
  void session.title.value;
  void refresh();
  void look();
});

const place = document.getElementById("page");
if (place) render(<Page />, place);
