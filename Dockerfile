# The app as an ordinary user, with a health check. Build: docker build -t kv-cache-workbench .
# Lint: .venv/bin/hadolint Dockerfile
FROM python:3.12-slim-bookworm

RUN useradd --create-home --uid 10001 workbench
WORKDIR /home/workbench/app

# Packages first: they change less often than the code. On x86-64 requirements.txt names PyTorch's
# own CPU wheel, so no gigabytes of CUDA come along.
COPY requirements.txt requirements-offline.txt ./
RUN pip install --no-cache-dir -r requirements.txt \
    && pip install --no-cache-dir --no-deps -r requirements-offline.txt

COPY app.py ./
COPY .streamlit/config.toml .streamlit/config.toml
COPY pages pages
COPY kvcore kvcore

# Models are kept here; mount a volume on it to share them between replicas and restarts.
RUN mkdir /models && chown workbench /models
ENV HF_HOME=/models/huggingface \
    KV_WORKBENCH_CACHE=/models/workbench \
    OMP_WAIT_POLICY=PASSIVE \
    PYTHONUNBUFFERED=1
VOLUME /models

USER 10001
EXPOSE 8501

HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4)"]

# Bad settings end the container with their sentence before anybody visits.
CMD ["sh", "-c", "python -m kvcore.settings && exec streamlit run app.py --server.port 8501 --server.address 0.0.0.0 --server.headless true --server.fileWatcherType none"]
