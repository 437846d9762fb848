// Models on the disk of the server's machine that clients may download and delete.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace quire {

struct PullProgress {
  std::string status;                 // "pulling manifest"
  std::string digest = {};            // of the file that is being downloaded, "sha256:…"; empty: it has none
  uint64_t total = 0, completed = 0;  // bytes of that file; 0: none is being downloaded
};

// Names are Ollama's, "llama3.2:1b" and "hf.co/ORG/REPO:QUANT", or those of -m (docs/hub.md). Functions are called from
// several threads at a time; they may take hours, and throw Error.
class ModelStore {
 public:
  virtual ~ModelStore() = default;
  // Downloads a model, or brings it up to date. check: called ten times a second. It and `show` may throw, which ends the
  // download; what came stays, and is continued by the next pull. Returns the name by which -m knows the model.
  virtual std::string pull(const std::string& name, const std::function<void(const PullProgress&)>& show,
                           const std::function<void()>& check) = 0;
  // Removes what no other model uses. Returns false if there is no such model, and throws Error (kInvalid) if it is served.
  virtual bool remove(const std::string& name) = 0;
};

}  // namespace quire
