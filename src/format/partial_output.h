// What is kept of an output that takes long to compute, so that a later run with the same order can continue it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json/parse.h"

namespace quire {

// OUT.partial, a folder next to the output OUT:
//
//   journal.jsonl    {"quire_journal": 1, "order": {…}}, then a line for each finished part:
//                    {"part": NAME, "checksums": [XXH3-64 of its bytes, …], "facts": {…}}
//   output           what is written so far: a file of its final size, or a folder
//   importance.gguf, types.json, rotated    what a run computes before it writes
//
// A line is appended once the part's bytes are written. A part is trusted only if the bytes that are found have the
// checksums. importance.gguf and types.json are parts, too. A last line without an end was being written when the run died,
// and is dropped. The journal is locked while the object lives.
class PartialOutput {
 public:
  struct Part {
    std::vector<uint64_t> checksums;
    Json facts;  // what the writer wants to know of the part when it takes it over
  };

  // output: without a slash at its end. order: everything that decides the output's bytes, by the name that users know it
  // by. start_over: drop what a run of another order has left. A damaged journal is dropped in any case, and warning() says
  // so. Throws Error: another order (it says what differs), another process that works on it, a file or
  // folder of that name that is no partial output, not writable.
  PartialOutput(const std::filesystem::path& output, const Json& order, bool start_over);
  // Removes the folder if nothing is finished.
  ~PartialOutput();
  PartialOutput(const PartialOutput&) = delete;
  PartialOutput& operator=(const PartialOutput&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path output() const;
  std::filesystem::path importance() const;
  std::filesystem::path types() const;
  std::filesystem::path rotated() const;

  const std::string& warning() const { return warning_; }  // empty: none
  bool is_empty() const { return parts_.empty(); }  // nothing is finished, neither by this run nor by earlier ones

  // null: the part is not finished.
  const Part* find(std::string_view name) const;
  // Notes a finished part; a later note of the same name counts. Throws Error: a full disk.
  void add(const std::string& name, Part part);
  // The same for a file of the folder, which is whole.
  void add_file(const std::filesystem::path& file);
  bool has_file(const std::filesystem::path& file) const;
  // Removes the folder. To be called when the output has its name.
  void finish();

 private:
  void lock();
  void read(const Json& order, bool start_over);
  void begin(const Json& order);
  void append(const std::string& line);
  void remove_content() const;
  std::filesystem::path journal() const;

  std::filesystem::path folder_;
  int descriptor_ = -1;  // of the journal
  std::map<std::string, Part, std::less<>> parts_;
  std::string warning_;
};

}  // namespace quire
