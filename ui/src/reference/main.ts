import SwaggerUI from "swagger-ui-dist/swagger-ui-es-bundle.js";
import "swagger-ui-dist/swagger-ui.css";

import "./reference.css";

// The description is beside the page: `/docs` and `/openapi.json`.
const DESCRIPTION = "openapi.json";

interface Description {
  info: { title: string };
}

async function show(): Promise<void> {
  const response = await fetch(DESCRIPTION);
  if (!response.ok) {
    throw new Error(`the server answers ${response.status}`);
  }
  const spec = (await response.json()) as Description;
  document.title = spec.info.title;
  // Its validator is another company's server, so it is switched off.
  SwaggerUI({ spec, dom_id: "#reference", deepLinking: true, validatorUrl: null });
}

show().catch((error: unknown) => {
  const reason = error instanceof Error ? error.message : String(error);
  const note = document.createElement("p");
  note.setAttribute("role", "alert");
  note.textContent = `The description cannot be shown: ${reason}.`;
  document.getElementById("reference")?.replaceChildren(note);
});
