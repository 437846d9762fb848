// A model's matrices: which ones, where they come from, and where they go.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/team.h"
#include "model/checkpoint.h"
#include "model/packing/load_meter.h"
#include "model/packing/matrix_source.h"
#include "model/packing/pack_file.h"
#include "ops/communicator.h"

namespace quire {

struct MatrixJob {
  PackedMatrix* matrix;
  MatrixSource from;
  size_t offset;  // in the memory for all matrices; a multiple of 64
  // The only panels that are packed: those that one of several ranks computes with. `matrix` is the whole matrix all the same, so
  // its data begins where panel 0 would be. nullopt: all.
  std::optional<Share> part = {};

  Share panels() const { return part.value_or(Share{0, matrix->panels()}); }
  size_t bytes() const { return static_cast<size_t>(panels().size()) * matrix->layout.bytes; }
  const std::byte* data_in(const std::byte* memory) const {
    return memory + offset - static_cast<size_t>(panels().begin) * matrix->layout.bytes;
  }
};

// Packs all matrices on all threads of the team. Throws Error naming `file` and tensor if a weight is not finite or a
// coded matrix is damaged. memory: the backend's, zeroed. mappings: the files being packed. Their pages are dropped as they are
// used, so that a load needs little more memory than the packed matrices.
void pack_matrices(std::span<const MatrixJob> jobs, Backend& backend, std::byte* memory, const std::string& file,
                   std::span<const MappedFile> mappings, Team& team, const OnLoad& report);

// Identifies the bytes that pack_matrices() gives, without reading all of the checkpoint: its headers, sizes and times of
// change, part of each tensor, and what becomes of each matrix. Paths and names of files do not matter.
PackIdentity pack_identity(const Checkpoint& checkpoint, std::span<const MatrixJob> jobs, const Backend& backend);

}  // namespace quire
