// links: server
// Any bytes as a form with files are read or refused; however they are cut into pieces, the parts are the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http/multipart_reader.h"

namespace {

class NotedForm final : public quire::FormSink {
 public:
  void begin_part(const std::string& name, const std::optional<std::string>& filename) override {
    text += "\n[" + name + "=" + filename.value_or("?") + "]";
  }
  void add(std::string_view bytes) override { text += bytes; }
  quire::Reply finish() override { return {}; }

  std::string text;
};

// What the form has, up to where it is refused.
std::string read_form(std::string_view form, size_t piece) {
  NotedForm sink;
  quire::MultipartReader reader("B", sink);
  try {
    for (; !form.empty(); form.remove_prefix(std::min(piece, form.size()))) reader.read(form.substr(0, piece));
  } catch (const quire::ApiError&) {
    return "refused";
  }
  return sink.text + (reader.complete() ? "" : " incomplete");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view form(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    quire::form_boundary(form);
  } catch (const quire::ApiError&) {
  }
  // A form without its end may keep back what could be the beginning of a boundary: compare whole forms only.
  const std::string whole = read_form(form, form.size() + 1), cut = read_form(form, 1 + data[0] % 64);
  if (!whole.ends_with(" incomplete") && whole != cut) std::abort();
  return 0;
}
