#pragma once

#include <memory>

#include "checkpoint/models/export_format.hpp"

namespace train::checkpoint {

/// Safetensors files; a tensor's own type goes before `type`.
[[nodiscard]] std::shared_ptr<const ExportFormat> safetensors_format(ExportType type);

}  // namespace train::checkpoint
