#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "kernels/device/buffer.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/stream.hpp"
#include "tests/kernels/kernel_fixture.hpp"
#include "tests/support/devices/instruction_sets.hpp"

namespace train::kernels::testing::backend_test {
namespace {

#define TRAIN_KERNEL_NAME(name, Params) #name,
constexpr const char* kKernelNames[] = {TRAIN_KERNELS(TRAIN_KERNEL_NAME)};
#undef TRAIN_KERNEL_NAME
// A function that is in the table and not in the list would be compared with nothing.
static_assert(std::size(kKernelNames) + 3 == sizeof(KernelTable) / sizeof(void*),
              "the table has a name, a device, a kernel set and what the list has");

TEST_CASE("backend: the CPU table has every kernel", "[kernels][backend]") {
  const KernelTable& table = cpu_backend();
  REQUIRE(std::string(table.name) == "cpu");
  // All members after the name are function pointers; a forgotten one would be null.
  const std::size_t pointers = sizeof(KernelTable) / sizeof(void*);
  for (std::size_t i = 1; i < pointers; ++i) {
    void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const std::byte*>(&table) + i * sizeof(void*),
                sizeof(void*));
    INFO("member " << i);
    REQUIRE(pointer != nullptr);
  }
}

TEST_CASE("backend: where there is no CUDA device, a reason says so", "[kernels][backend]") {
  REQUIRE((cuda_backend() == nullptr) == !cuda_absence().empty());
  REQUIRE(cuda_absence().find('\n') == std::string::npos);
  if (cuda_backend() == nullptr) {
    REQUIRE_THROWS_WITH(make_cuda_stream("compute"), Catch::Contains(cuda_absence()));
    REQUIRE_THROWS_WITH(Buffer(8, "weights", MemoryKind::device),
                        Catch::Contains("'weights'") && Catch::Contains(cuda_absence()));
    REQUIRE_THROWS_AS(Buffer(8, "gate", MemoryKind::pinned), DeviceError);
  } else {
    REQUIRE(std::string(cuda_backend()->name) == "cuda");
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) + "/" + path);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The tests of kernels in files that begin with `prefix`, all together.
std::string tests_named(const std::string& prefix) {
  std::string tests;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(ACTORTRAIN_SOURCE_DIR "/tests/kernels")) {
    if (file.path().filename().string().starts_with(prefix) && file.is_regular_file()) {
      tests += text_of(file.path().lexically_relative(ACTORTRAIN_SOURCE_DIR));
    }
  }
  return tests;
}

TEST_CASE("backend: every kernel is compared with its CUDA twin", "[kernels][backend]") {
  const std::string tests = tests_named("cuda_");
  for (const std::string name : kKernelNames) {
    INFO(name);
    CHECK(std::regex_search(tests, std::regex("compare_(twins|sides)\\(\\s*\"" + name + "\"")));
  }
}

TEST_CASE("backend: every kernel is compared with itself on other instructions",
          "[kernels][backend]") {
  const std::string tests = tests_named("instruction_sets");
  for (const std::string name : kKernelNames) {
    INFO(name);
    CHECK(std::regex_search(tests, std::regex("compare_sets\\(\\s*\"" + name + "\"")));
  }
}

TEST_CASE("backend: the kernel set is one for all processors with FMA", "[kernels][backend]") {
  CHECK(kernel_set() == "cpu-fma-2");
  CHECK(cpu_absence().empty());
  if (test::has_avx512()) {
    const test::WithoutAvx512 narrow;
    CHECK(kernel_set() == "cpu-fma-2");
    CHECK(cpu_absence().empty());
  }
}

TEST_CASE("backend: a processor without FMA is refused", "[kernels][backend]") {
  const test::WithoutInstructions portable(HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL);
  CHECK_THAT(cpu_absence(), Catch::Contains("AVX2 and FMA"));
  CHECK(cpu_absence().find('\n') == std::string::npos);
  CHECK_THROWS_WITH(cpu_backend(), Catch::Contains("AVX2 and FMA"));
}

TEST_CASE("backend: the measured peak is plausible", "[kernels][backend]") {
  const double flops = measure_gemm_flops(1, 0.05);
  REQUIRE(flops > 1e8);
  REQUIRE(flops < 1e13);
  const double of_table = measure_gemm_flops(cpu_backend(), DType::f32, 0.05);
  REQUIRE(of_table > 1e8);
  REQUIRE(of_table < 1e13);
}

TEST_CASE("backend: kernels run on an inline stream as on a thread's", "[kernels][backend]") {
  const Values a = random_values(300 * 64, 1);
  const Values b = random_values(200 * 64, 2);
  const auto product = [&](Stream& stream) {
    Values c = zeros(300 * 200);
    cpu_backend().matmul(stream, {.a = a.data(),
                                  .b = b.data(),
                                  .c = c.data(),
                                  .m = 300,
                                  .n = 200,
                                  .k = 64,
                                  .lda = 64,
                                  .ldb = 64,
                                  .ldc = 200,
                                  .transpose_b = true});
    stream.synchronize();
    return c;
  };
  const auto thread = make_thread_stream("kernels", 2);
  const auto here = make_inline_stream(1);
  REQUIRE(product(*thread) == product(*here));
}

}  // namespace
}  // namespace train::kernels::testing::backend_test
