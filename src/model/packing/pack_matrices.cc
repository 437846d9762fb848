#include "model/packing/pack_matrices.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <vector>

#include "base/error.h"
#include "ops/backend.h"

namespace quire {
namespace {

// Names the first weight that is not finite. part: the rows of the job's matrix from `first` on.
[[noreturn]] void refuse_damaged(const MatrixJob& job, const PackedMatrix& part, int first, const std::string& file) {
  int row = 0, col = 0;
  const auto is_sound = [&] { return std::isfinite(packed_weight(part, row, col)); };
  while (is_sound()) {
    if (++col == part.cols) col = 0, ++row;
  }
  throw invalid("{}: tensor {} has the value {} in {}; the file is damaged", file, job.from.source.name,
                packed_weight(part, row, col), job.from.place(first + row));
}

std::string describe_job(const MatrixJob& job) {
  const PackedMatrix& m = *job.matrix;
  const PanelFormat& f = m.format;
  const MatrixSource& from = job.from;
  const Source& s = from.source;
  std::string panels;
  if (job.part) panels = fmt::format("panels {} to {} ", job.part->begin, job.part->end);
  return fmt::format("{}{} from {} {} {} {} {} {} {} {} {} {} {} {} {} {}; {} {} {} {} {} {} {} {} {}\n", panels,
                     job.offset, s.name, s.first, s.run, s.step, s.rows, s.first_col, s.cols, s.transposed, s.stacked,
                     from.file_rows, from.item, name(from.type), from.coded != nullptr, from.coded_cols,
                     static_cast<int>(f.codes), static_cast<int>(f.scale), static_cast<int>(f.zeros), f.zero, f.group,
                     fmt::join(f.table, ","), m.factor, m.rows, m.cols);
}

class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }
  void add(const std::string& text) { add(std::as_bytes(std::span(text))); }
  PackIdentity digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return {hash.high64, hash.low64};
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

// What precedes a file's tensors.
std::span<const std::byte> header_of(const MappedFile& file, std::span<const TensorView> tensors) {
  const std::byte *begin = file.bytes().data(), *end = begin + file.bytes().size(), *first = end;
  for (const TensorView& t : tensors) {
    if (t.bytes.data() >= begin && t.bytes.data() < first) first = t.bytes.data();
  }
  return {begin, first};
}

}  // namespace

void pack_matrices(std::span<const MatrixJob> jobs, Backend& backend, std::byte* memory, const std::string& file,
                   std::span<const MappedFile> mappings, Team& team, const OnLoad& report) {
  struct Piece {
    const MatrixJob* job;
    int begin, end;  // panels
  };
  std::vector<Piece> pieces;
  constexpr int kPanelsPerPiece = 16;
  size_t bytes = 0;
  for (const MatrixJob& job : jobs) {
    for (int p = job.panels().begin; p < job.panels().end; p += kPanelsPerPiece)
      pieces.push_back({&job, p, std::min(p + kPanelsPerPiece, job.panels().end)});
    job.matrix->data = job.data_in(memory);
    bytes += job.bytes();
  }
  constexpr size_t kMostHeld = size_t{32} << 20;    // bytes packed between two releases
  constexpr size_t kBytesALoop = size_t{64} << 20;  // then models that share the team have a step: about 50 ms
  std::vector<char> is_damaged(pieces.size());
  std::vector<std::exception_ptr> errors(pieces.size());
  LoadMeter meter(report, LoadProgress::Stage::kPacking, bytes);
  const auto size_of = [](const Piece& piece) {
    return static_cast<size_t>(piece.end - piece.begin) * piece.job->matrix->layout.bytes;
  };
  const auto memory_of = [memory](const Piece& piece) {
    const int first = piece.begin - piece.job->panels().begin;
    return memory + piece.job->offset + static_cast<size_t>(first) * piece.job->matrix->layout.bytes;
  };
  // The piece's panels, for the host.
  const auto part_of = [](const Piece& piece, std::span<const std::byte> bytes) {
    PackedMatrix part = *piece.job->matrix;
    part.rows = std::min(part.rows, piece.end * kPanel) - piece.begin * kPanel;
    part.data = bytes.data();
    return part;
  };
  const auto pack = [&](size_t i, int thread) {
    const Piece& piece = pieces[i];
    backend.write(memory_of(piece), size_of(piece), [&](std::span<std::byte> to) {
      try {
        piece.job->from.pack(*piece.job->matrix, piece.begin, piece.end, to.data());
      } catch (...) {
        errors[i] = std::current_exception();
      }
      const PackedMatrix part = part_of(piece, to);
      for (int p = 0; p < part.panels(); ++p)
        if (!is_finite(part, p)) is_damaged[i] = 1;
    });
    const size_t size = size_of(pieces[i]), done = meter.add(size, thread);
    if ((done - size) / kMostHeld != done / kMostHeld) {
      for (const MappedFile& mapping : mappings) mapping.release();
    }
  };
  for (size_t first = 0, end = 0; first < pieces.size(); first = end) {
    for (size_t held = 0; end < pieces.size() && held < kBytesALoop; ++end) held += size_of(pieces[end]);
    team.for_tiles(static_cast<int>(end - first),
                   [&](int i, int thread) { pack(first + static_cast<size_t>(i), thread); });
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const auto damaged = std::ranges::find(is_damaged, 1);
  if (damaged == is_damaged.end()) return;
  const Piece& piece = pieces[static_cast<size_t>(damaged - is_damaged.begin())];
  HostCopy copy;
  const auto damaged_bytes = backend.view(memory_of(piece), size_of(piece), copy);
  refuse_damaged(*piece.job, part_of(piece, damaged_bytes), piece.begin * kPanel, file);
}

PackIdentity pack_identity(const Checkpoint& checkpoint, std::span<const MatrixJob> jobs, const Backend& backend) {
  Hash hash;
  hash.add(fmt::format("packing {}\n", backend.packing_version()));
  for (const MappedFile& file : checkpoint.mappings()) {
    hash.add(fmt::format("file {} {}\n", file.bytes().size(), file.modified()));
    hash.add(header_of(file, checkpoint.tensors()));
  }
  if (checkpoint.hf()) hash.add(checkpoint.hf()->config.json().dump());
  // Images and archives often give all files one time, and models trained from one another have equal sizes and headers.
  // Their numbers differ in every tensor.
  constexpr size_t kSample = 256;
  for (const MappedFile& file : checkpoint.mappings()) file.advise(MappedFile::Access::kRandom);
  for (const TensorView& t : checkpoint.tensors())
    hash.add(t.bytes.subspan(t.bytes.size() / 2, std::min(kSample, t.bytes.size() - t.bytes.size() / 2)));
  for (const MappedFile& file : checkpoint.mappings()) file.advise(MappedFile::Access::kUsual);
  for (const MatrixJob& job : jobs) hash.add(describe_job(job));
  return hash.digest();
}

}  // namespace quire
