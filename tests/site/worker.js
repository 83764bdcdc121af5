// The search runs in a web worker, which browsers do not start for pages from file: URLs. A hidden frame replaces it.

if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.receive = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => (inner.ready = resolve));
      inner.document.write(
        "<script>postMessage = (data) => receive(data); importScripts = () => {};</script>"
        + `<script src="${url}" onload="ready()"></script>`);
      inner.document.close();
    }

    async postMessage(data) {
      await this.ready;
      this.inner.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {}
  };
}
