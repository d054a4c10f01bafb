"""Parts of torch below its public surface: private functions, compilation, kernels, layers written out, memory."""
