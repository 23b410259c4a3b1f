"use strict";
// Browsers start no worker for a page that is a file. The search is one, so it runs in a frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      // In a worker, what is posted goes to the page.
      this.inside.postMessage = (data) => setTimeout(() => this.tell(data));
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      this.ready = new Promise((done) => script.addEventListener("load", done));
      frame.contentDocument.body.append(script);
    }

    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
