#include "bench/data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/data/explain.h"
#include "lockstep/data/files.h"
#include "lockstep/data/image.h"
#include "lockstep/observe/step_clock.h"
#include "lockstep/ops/random.h"

// Behind <cstdio>, which it needs and does not include.
#include <jpeglib.h>

namespace lockstep::bench {
namespace {

using data::AUTOTUNE;
using data::Dataset;
using data::Element;
using data::Iterator;

void busy_wait(int64_t ns) {
  for (const int64_t end = monotonic_ns() + ns; monotonic_ns() < end;) {
  }
}

// All of it; the number of elements.
int64_t drain(const Dataset& dataset) {
  Iterator iterator(dataset);
  Element element;
  int64_t count = 0;
  while (iterator.next(element)) ++count;
  return count;
}

class GatherCopy {
 public:
  explicit GatherCopy(int64_t batch)
      : batch_(batch),
        rows_(static_cast<size_t>(kSliceExamples * kSliceColumns), 1.0F),
        order_(kSliceExamples) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::shuffle(order_.begin(), order_.end(), std::mt19937_64(1));
  }
  void epoch() {
    for (size_t begin = 0; begin < order_.size(); begin += static_cast<size_t>(batch_)) {
      const size_t end = std::min(order_.size(), begin + static_cast<size_t>(batch_));
      for (size_t i = begin; i < end; ++i)
        std::memcpy(copy_.data() + (i - begin) * kSliceColumns, rows_.data() + order_[i] * kSliceColumns,
                    kSliceColumns * sizeof(float));
    }
  }

 private:
  int64_t batch_;
  std::vector<float> rows_, copy_ = std::vector<float>(static_cast<size_t>(batch_ * kSliceColumns));
  std::vector<size_t> order_;
};

constexpr int64_t kMapElements = 256;

// A number nobody can foresee, so that none of the work is left out.
double heavy(double x) {
  for (int i = 0; i < 20000; ++i) x = std::sqrt(x * x + 1.0) * 0.999;
  return x;
}
Tensor heavy_of(const Tensor& x) { return Tensor::scalar(heavy(static_cast<double>(x.item<int64_t>()))); }

constexpr int64_t kStepNs = 1'000'000, kInputNs = 800'000, kHiddenSteps = 100;
constexpr double kAgreement = 0.05;

void run_hidden(const Dataset& dataset) {
  Iterator iterator(dataset);
  Element element;
  observe::StepClock clock;
  observe::ReplicaClock& replica = clock.replica(0);
  for (bool goes_on = true; goes_on;) {
    replica.begin_step();
    {
      const observe::TimeScope scope(&replica, observe::Category::input_wait);
      goes_on = iterator.next(element);
    }
    if (!goes_on) break;
    {
      const observe::TimeScope scope(&replica, observe::Category::compute);
      busy_wait(kStepNs);
    }
    replica.end_step();
  }
  replica.abandon_step();
  const observe::ReplicaSummary time = clock.summary().replicas[0];
  const double waited = static_cast<double>(time[observe::Category::input_wait].total) /
                        static_cast<double>(std::max<int64_t>(1, time.wall.total));
  const double explained = 1 - data::explain(iterator).consumer;
  if (std::abs(waited - explained) > kAgreement)
    throw std::runtime_error(
        fmt::format("the step clock says that steps waited {:.1f}% of the time, explain {:.1f}%",
                    100 * waited, 100 * explained));
}

// Removed with the last candidate that reads it.
class RecordFile {
 public:
  RecordFile()
      : path_(std::filesystem::temp_directory_path() / fmt::format("lockstep_bench_{}.tfrecord", getpid())) {
    data::TFRecordWriter writer(path_);
    std::string record(kRecordBytes, 'x');
    for (int64_t i = 0; i < kRecords; ++i) {
      std::memcpy(record.data(), &i, sizeof i);
      writer.write(record);
    }
    writer.close();
  }
  ~RecordFile() { std::filesystem::remove(path_); }
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// In pieces that stay in the cache, as a record does.
void read_and_checksum(const std::string& path, std::string& piece) {
  piece.resize(static_cast<size_t>(kRecordBytes));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::setvbuf(file.get(), nullptr, _IONBF, 0);
  volatile uint32_t kept = 0;
  for (size_t got = 0; (got = std::fread(piece.data(), 1, piece.size(), file.get())) > 0;)
    kept = crc32c(std::string_view(piece.data(), got));
  (void)kept;
}

std::vector<std::string> jpegs() {
  std::vector<std::string> images;
  for (int64_t i = 0; i < kJpegs; ++i) {
    // Smooth, with some noise: about as hard to decode as a photograph.
    std::vector<uint8_t> pixels(static_cast<size_t>(kJpegSide * kJpegSide * 3));
    std::mt19937 noise(static_cast<uint32_t>(i));
    for (size_t p = 0; p < pixels.size(); ++p)
      pixels[p] = static_cast<uint8_t>(
          100 + 80 * std::sin(static_cast<double>(p / 3 % kJpegSide) * 0.05 + static_cast<double>(i)) +
          static_cast<double>(noise() % 24));
    images.push_back(data::encode_jpeg(Tensor::from(pixels, {kJpegSide, kJpegSide, 3}), 90));
  }
  return images;
}

void decode_alone(const std::string& jpeg, std::vector<uint8_t>& pixels) {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(jpeg.data()), jpeg.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  pixels.resize(size_t{info.output_width} * info.output_height * 3);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + size_t{info.output_scanline} * info.output_width * 3;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

}  // namespace

std::vector<Candidate> jpeg_candidates(int threads) {
  const auto images = std::make_shared<const std::vector<std::string>>(jpegs());
  constexpr int64_t kBatch = 32;
  const auto alone = [images, threads] {
    std::atomic<size_t> next{0};
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&] {
        std::vector<uint8_t> pixels;
        for (size_t i = 0; (i = next++) < images->size();) decode_alone((*images)[i], pixels);
      });
    for (std::thread& thread : team) thread.join();
  };
  const auto decode = [images](const Tensor& first) {
    const auto begin = images->begin() + first.item<int64_t>();
    const std::vector<std::string_view> batch(begin, begin + kBatch);
    return data::decode_images(batch);
  };
  const Dataset dataset = Dataset::range(0, kJpegs, kBatch).map(decode, {.num_parallel_calls = threads});
  return {whole("libjpeg alone", alone, kJpegs), whole(
                                                     "Lockstep map", [dataset] { drain(dataset); }, kJpegs)};
}

std::vector<Candidate> slices_candidates(int64_t batch) {
  const int64_t batches = (kSliceExamples + batch - 1) / batch;
  const auto gather = std::make_shared<GatherCopy>(batch);
  const Tensor rows = Tensor::full(DType::float32, {kSliceExamples, kSliceColumns}, 1.0);
  const Dataset dataset =
      Dataset::from_tensor_slices(rows).shuffle(kSliceExamples, {.seed = 1}).batch(batch).prefetch();
  return {whole(
              "gather copy", [gather] { gather->epoch(); }, batches),
          whole(
              "Lockstep", [dataset] { drain(dataset); }, batches)};
}

std::vector<Candidate> map_candidates(int threads) {
  const auto plain = [] {
    volatile double kept = 0;
    for (int64_t i = 0; i < kMapElements; ++i) kept = heavy(static_cast<double>(i));
    (void)kept;
  };
  const auto mapped = [threads](int64_t calls) {
    return [dataset = Dataset::range(kMapElements)
                          .map(heavy_of, {.num_parallel_calls = calls})
                          .with_options({.threads = threads})] { drain(dataset); };
  };
  std::vector<Candidate> list{whole("plain loop", plain, kMapElements),
                              whole("Lockstep map", mapped(1), kMapElements)};
  if (threads > 1)
    list.push_back(whole(fmt::format("Lockstep map, {} threads", threads), mapped(threads), kMapElements));
  list.push_back(whole("Lockstep map, AUTOTUNE", mapped(AUTOTUNE), kMapElements));
  return list;
}

std::vector<Candidate> hidden_candidates() {
  const auto alone = [] {
    for (int64_t i = 0; i < kHiddenSteps; ++i) busy_wait(kStepNs);
  };
  const Dataset dataset = Dataset::range(kHiddenSteps)
                              .map([](const Tensor& x) {
                                busy_wait(kInputNs);
                                return x;
                              })
                              .prefetch();
  return {whole("steps alone", alone, kHiddenSteps),
          whole(
              "Lockstep, prefetched", [dataset] { run_hidden(dataset); }, kHiddenSteps)};
}

std::vector<Candidate> tfrecord_candidates() {
  const auto file = std::make_shared<RecordFile>();
  const Dataset dataset = data::TFRecordDataset(file->path());
  return {whole(
              "read and checksum",
              [file, piece = std::string()]() mutable { read_and_checksum(file->path(), piece); }, 1),
          whole(
              "Lockstep TFRecordDataset", [file, dataset] { drain(dataset); }, 1)};
}

}  // namespace lockstep::bench
