// links: hub
// Any bytes as a repository, a manifest, a journal or a name give an Error, or values that keep their promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "hub/choose_files.h"
#include "hub/download_source.h"
#include "hub/ollama_manifest.h"
#include "hub/range_journal.h"
#include "hub/repository.h"

namespace {

void attempt(auto&& call) {
  try {
    call();
  } catch (const quire::Error&) {
  }
}

void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const quire::Repository repository = quire::parse_repository(text, "hf:org/x");
    for (const quire::RepoFile& file : repository.files) require(quire::is_path_inside(file.path));
    const quire::FileChoice choice = quire::choose_files(repository.files, "", 1u << 30, "hf:org/x");
    require(!choice.files.empty() && (choice.main.empty() || choice.files.front().path == choice.main));
  });
  attempt([&] { require(quire::is_hex(quire::parse_ollama_manifest(text, "ollama:x").model.digest, 64)); });
  attempt([&] {
    const auto journal = quire::RangeJournal::parse(text, "etag", 100'000);
    for (size_t i = 0; i < journal.pieces(); ++i) require(journal.done(i) <= journal.bytes(i));
  });
  attempt([&] {
    // A name that is accepted is accepted again as it is spelled.
    if (const auto source = quire::parse_download_source(text)) {
      const std::string name = quire::source_name(*source);
      require(quire::source_name(quire::parse_download_source(name).value()) == name);
    }
  });
  return 0;
}
