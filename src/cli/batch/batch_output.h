// What `quire batch` writes: a file that is kept while it grows, and gets its name when it is whole; or standard output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/partial_output.h"
#include "server/batch/result_file.h"

namespace quire {

class BatchOutput {
 public:
  // path: "-" is standard output. in_order: finish() puts the results in the order of their lines; otherwise they stay in the
  // order in which they came. order, start_over: as PartialOutput. Throws Error as PartialOutput does.
  BatchOutput(std::string path, bool in_order, const Json& order, bool start_over);

  // What an earlier run has left. `warning`: that it was damaged; empty: it was not.
  size_t found() const { return found_; }
  const std::string& warning() const;
  std::string folder() const;  // empty: standard output

  // Whether the line has a result already.
  bool has(const ResultId& id) const { return file_ && file_->has(id); }
  // The id of the next line of the input, in the input's order.
  void expect(const ResultId& id);
  // Throws Error (kResource): a full disk, a closed pipe.
  void add(const ResultId& id, std::string_view line);
  size_t answered() const { return file_ ? file_->answered() : answered_; }
  size_t failed() const { return file_ ? file_->failed() : failed_; }

  // Once all lines that were expected have results: gives the file its name.
  void finish();

 private:
  void write_in_order(const std::filesystem::path& to) const;

  const std::string path_;
  const bool in_order_;
  std::unique_ptr<PartialOutput> partial_;  // null: standard output
  std::unique_ptr<ResultFile> file_;        // of partial_
  std::vector<ResultId> expected_;
  size_t found_ = 0, answered_ = 0, failed_ = 0;
};

}  // namespace quire
