// Renders the OpenAPI document of this server. Swagger UI has its own dark colours, which follow a class.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();

  /** Keep the operations that have every word of `phrase` in their path, summary or group. */
  function findOperations(groups, phrase) {
    const words = phrase.toLowerCase().split(/\s+/);
    const has = (text) => words.every((word) => text.toLowerCase().includes(word));
    return groups
      .map((group, name) =>
        group.update("operations", (operations) =>
          operations.filter((each) => has(`${name} ${each.get("method")} ${each.get("path")} ${each.getIn(["operation", "summary"])}`)),
        ),
      )
      .filter((group) => group.get("operations").size);
  }

  // Swagger UI's own search finds groups only. What is found is shown open.
  const search = () => ({
    fn: { opsFilter: findOperations },
    statePlugins: {
      layout: {
        wrapActions: {
          updateFilter: (update, system) => (phrase) => {
            for (const name of system.specSelectors.taggedOperations().keySeq()) {
              system.layoutActions.show(["operations-tag", name], Boolean(phrase));
            }
            return update(phrase);
          },
        },
      },
    },
  });

  // The groups are closed at first, and the examples can be sent without a further click.
  SwaggerUIBundle({
    url: new URL("../openapi.json", document.currentScript.src).href,
    dom_id: "#api",
    validatorUrl: null,
    docExpansion: "none",
    defaultModelsExpandDepth: -1,
    tryItOutEnabled: true,
    filter: true,
    plugins: [search],
    onComplete: () => {
      const field = document.querySelector(".operation-filter-input");
      field.placeholder = "Search operations: rerank, /v1/models, sparse";
      field.setAttribute("aria-label", "Search operations");
    },
  });
})();
