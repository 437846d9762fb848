// Writes a Hugging Face directory as a GGUF file that llama.cpp and Quire read with the same results, or a GGUF file as
// another with other types.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "format/gguf_writer.h"
#include "format/partial_output.h"
#include "model/checkpoint.h"
#include "model/convert/settings.h"
#include "model/convert/tensor_plan.h"
#include "model/convert/tensor_writer.h"

namespace quire {

// What a file will hold. Types may be changed until it is written: of tensors that hold matrices, to writable types whose
// blocks fit their rows.
struct FilePlan {
  ModelConfig config;
  std::string_view architecture;  // general.architecture
  std::string name;               // general.name
  std::vector<PlannedTensor> tensors;
  std::vector<RopeTensor> ropes;      // besides them, of directories
  std::vector<std::string> warnings;  // where llama.cpp will not do as the checkpoint says

  // Of most matrix elements.
  TensorType main_type() const;
};

// name: general.name; a GGUF file keeps its own. Throws Error: an architecture or a setting that GGUF files cannot express,
// and whatever loading would refuse without reading weights. The checkpoint must outlive the plan.
FilePlan plan_file(const Checkpoint& from, const std::string& name);

struct WriteOptions {
  int file_type = 0;                                      // general.file_type: llama.cpp's number of a mix of types
  std::function<void(GgufHeader& header)> describe = {};  // adds further metadata
  // How a tensor's rows become bytes; empty: plain_encoding() without importance. The result is used until the next call.
  std::function<RowEncoding(const PlannedTensor& tensor)> encoding = {};
  // In tensors; called on this thread after each. It may throw to stop.
  std::function<void(size_t written, size_t total)> progress = {};
  // What an earlier call has written is taken over, and if this one ends early, what it has written is kept there. The
  // same checkpoint and options must give the same bytes. null: nothing is kept.
  PartialOutput* partial = nullptr;
  // With `partial`: what to note of a tensor that was just encoded, an object; and whether a tensor with this note can be
  // taken over. Empty: nothing; always.
  std::function<Json(const PlannedTensor& tensor)> note = {};
  std::function<bool(const PlannedTensor& tensor, const Json& note)> accept = {};
};

// Writes `to`, all at once: an error leaves an older file as it was. Before it writes weights it reads back the
// configuration, the tensors' shapes and the vocabulary as Quire reads a GGUF file, and refuses a file that would be
// another model. Memory: the largest tensor as written, and a row for each thread. May add to the plan's warnings. Throws
// Error: damaged weights, a full disk.
void write_file(const Checkpoint& from, FilePlan& plan, const std::filesystem::path& to, const WriteOptions& options,
                Team& team);

struct ConvertOptions {
  std::optional<TensorType> type;  // of matrices: a writable one; std::nullopt: as in the checkpoint
  std::string name;                // general.name
  std::function<void(size_t written, size_t total)> progress = {};  // in tensors
};

struct Converted {
  TensorType type;  // that most matrix elements have
  size_t tensors = 0;
  std::vector<std::string> warnings;
};

// The architectures (config.json) that can be written.
std::vector<std::string_view> convertible_architectures();

// A directory with plain weights as a GGUF file whose matrices have one type, or the type that fitting_type() gives.
// Throws Error as plan_file() and write_file(), and for a GGUF file or quantized weights.
Converted convert_checkpoint(const Checkpoint& from, const std::filesystem::path& to, const ConvertOptions& options,
                             Team& team);

// llama.cpp's number for files whose matrices mostly have this type (general.file_type).
int file_type_of(TensorType type);

}  // namespace quire
