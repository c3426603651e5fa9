// Renders the OpenAPI document of this server. Swagger UI has its own dark colours, which follow a class.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();
  // The groups are closed at first, and the examples can be sent without a further click.
  SwaggerUIBundle({
    url: new URL("../openapi.json", document.currentScript.src).href,
    dom_id: "#api",
    validatorUrl: null,
    docExpansion: "none",
    defaultModelsExpandDepth: 0,
    tryItOutEnabled: true,
  });
})();
