// Runs the module of the page a second time, beside the page: what takes long is computed here and can be broken off.
onmessage = async ({ data: [js, module] }) => {
  onmessage = null;
  try {
    const app = await import(js);
    await app.default({ module_or_path: module });
  } catch (error) {
    reportError(error);
  }
};
