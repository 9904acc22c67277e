/** Whether the page shows what is for operators. */
import { how, me } from "./account";

/** On a server that believes every caller, everyone is an operator. */
export const isOperator = (): boolean =>
  me.value?.roles.includes("operator") ?? how.value?.method === "none";
