#include "mil/ops/window.h"

#include <algorithm>

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kMaxWindow = 1 << 20;

void place(Window::Three& to, const std::vector<std::int64_t>& values, std::size_t rank) {
  std::copy(values.begin(), values.end(), to.begin() + static_cast<std::ptrdiff_t>(3 - rank));
}

// What the padding type says for dimension d.
void pad_dimension(Call& c, Window& w, std::size_t d, const std::string& type, bool ceil_mode) {
  if (type == "same" || type == "same_lower") {
    w.out[d] = (w.in[d] + w.stride[d] - 1) / w.stride[d];
    const std::int64_t total = std::max<std::int64_t>(0, (w.out[d] - 1) * w.stride[d] + w.extent(d) - w.in[d]);
    w.before[d] = type == "same" ? total / 2 : total - total / 2;
    w.after[d] = total - w.before[d];
    return;
  }
  const std::int64_t pad = w.before[d] + w.after[d], slack = w.in[d] + pad - w.extent(d);
  if (slack < 0)
    c.fail("a window of " + std::to_string(w.extent(d)) + " over " + std::to_string(w.in[d] + pad) + " elements");
  w.out[d] = slack / w.stride[d] + 1;
  if (!ceil_mode) return;
  w.out[d] = (slack + w.stride[d] - 1) / w.stride[d] + 1;
  // A last window that would lie in the padding alone is dropped.
  if (pad > 0 && 2 * (w.out[d] - 1) * w.stride[d] >= 2 * w.in[d] + pad) --w.out[d];
}

}  // namespace

Window read_window(Call& c, const Info& x, const Shape& kernel, WindowUse use) {
  const bool pool = use == WindowUse::kPool;
  if (x.storage != Storage::kFloat) c.fail("needs a floating point tensor");
  if (x.rank() < 3 || x.rank() > 5) c.fail("needs a rank of 3 to 5");
  Window w;
  w.batch = x.shape[0];
  w.channels = x.shape[1];
  w.spatial_rank = x.shape.size() - 2;
  const std::size_t rank = w.spatial_rank;
  const std::vector<std::int64_t> ones(rank, 1), strides = c.ints_or("strides", ones);
  const std::vector<std::int64_t> dilations = pool ? ones : c.ints_or("dilations", ones);
  const std::vector<std::int64_t> pad = c.ints_or("pad", std::vector<std::int64_t>(2 * rank, 0));
  if (kernel.size() != rank || strides.size() != rank || dilations.size() != rank || pad.size() != 2 * rank) {
    c.fail("kernel, strides, dilations or pad do not fit " + std::to_string(rank) + " spatial dimensions");
  }
  const auto sane = [&](const std::vector<std::int64_t>& values, std::int64_t least) {
    return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v >= least && v <= kMaxWindow; });
  };
  if (!sane(kernel, 1) || !sane(strides, 1) || !sane(dilations, 1) || !sane(pad, 0)) {
    c.fail("kernel, strides, dilations or pad out of range");
  }
  place(w.in, {x.shape.begin() + 2, x.shape.end()}, rank);
  place(w.kernel, kernel, rank);
  place(w.stride, strides, rank);
  place(w.dilation, dilations, rank);
  const std::string type = c.text("pad_type", "valid");
  if (type != "valid" && type != "same" && type != "same_lower" && type != "custom")
    c.fail("unknown pad_type '" + type + "'");
  for (std::size_t d = 0; d < 3 && use != WindowUse::kTransposed; ++d) {
    const std::size_t own = d + rank;
    if (type == "custom" && own >= 3) {
      w.before[d] = pad[2 * (own - 3)];
      w.after[d] = pad[2 * (own - 3) + 1];
    }
    if (own >= 3) pad_dimension(c, w, d, type, pool && c.flag("ceil_mode", false));
  }
  const std::string what = "a window";
  (void)element_count({w.kernel[0], w.kernel[1], w.kernel[2]}, what);
  (void)element_count({w.batch, w.channels, w.out[0], w.out[1], w.out[2]}, what);
  return w;
}

}  // namespace coremlsim::mil
